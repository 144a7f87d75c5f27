"""``albert-export bench``: measure the models of artifacts against each other."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from exporter.atomic_writing import write_atomically
from exporter.cli.console import FiniteFloat, clear_errors, progress_steps
from exporter.cli.lists import CommaList
from exporter.cli.output_files import check_report_target
from exporter.errors import BenchmarkError

if TYPE_CHECKING:
    from exporter.benchmark import Bench
    from exporter.records import Measurement

__all__ = ["bench"]

_NUMBERS = CommaList(click.IntRange(1), "N,N,…")
_NAMES = CommaList(click.STRING, "NAME,NAME,…")
_RUNTIMES = CommaList(click.Choice(["cpu", "node", "browser"]), "cpu,node,browser")


@click.command()
@click.argument(
    "artifacts", metavar="ARTIFACT...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--runtime",
    "runtimes",
    type=_RUNTIMES,
    default="cpu",
    show_default=True,
    help="Where to run: onnxruntime on the CPU, its WebAssembly in Node, or in a browser.",
)
@click.option(
    "--browser",
    "browsers",
    type=_NAMES,
    help="chromium, chrome, firefox.  [default: all that are installed]",
)
@click.option(
    "--threads", type=_NUMBERS, default="1", show_default=True, help="Compute threads, a case each."
)
@click.option(
    "--seq",
    "sequences",
    type=_NUMBERS,
    help="Tokens per row, a case each.  [default: the maximum, at most 128]",
)
@click.option(
    "--batch",
    "batches",
    type=_NUMBERS,
    default="1",
    show_default=True,
    help="Rows per run, a case each.",
)
@click.option(
    "--data",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Run on real texts, not random ids: JSON lines, or CSV with a header. As many of them as "
    "--min-runs, one at a time; a calibrated model (albert-export calibrate) is also measured "
    "leaving early.",
)
@click.option("--text-column", default="text", show_default=True, help="Column of the text.")
@click.option(
    "--baseline/--no-baseline",
    default=None,
    help="Insist on the unshared baselines, or leave them out.  [default: those that are there]",
)
@click.option(
    "--precision",
    "--variant",
    "variants",
    type=_NAMES,
    help="Which files: fp32, fp16, int8, …, each with its own baseline, or with those named: "
    "fp32,int8,baseline.  [default: all]",
)
@click.option(
    "--sessions",
    type=click.IntRange(1, 100),
    default=6,
    show_default=True,
    help="Fresh processes of each case. Two processes of one file differ by a few percent, "
    "so that with one a ratio's interval promises too much.",
)
@click.option(
    "--min-runs",
    type=click.IntRange(2, 100_000),
    default=42,
    show_default=True,
    help="Runs of each case, over all sessions.",
)
@click.option(
    "--min-seconds",
    type=FiniteFloat(0),
    default=5.0,
    show_default=True,
    help="And so long, over all sessions of the cases that take turns.",
)
@click.option(
    "--warm-up",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="Runs before the first that counts, at least, in each session; more until three in "
    "a row are within 10 %.",
)
@click.option(
    "--limit",
    "limit_s",
    type=FiniteFloat(1),
    default=600.0,
    show_default=True,
    help="Seconds that a case may take in all; one that would take longer is given up, which "
    "its record says. A quarter of it is for loading, and for one run.",
)
@click.option(
    "--transfer/--no-transfer",
    default=None,
    help="Compress the files (brotli 5, gzip 6) to tell what a download takes.  "
    "[default: all but baselines over 100 MB]",
)
@click.option("--label", help="What the records call this device.  [default: the processor]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write each record to this file as soon as it is measured.",
)
@click.option("--resume", is_flag=True, help="Measure only what the --out file does not hold.")
@click.option("--append", is_flag=True, help="Measure all and add it to the --out file.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a report, one HTML file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print records and summary as JSON.")
@click.pass_context
@clear_errors
def bench(
    ctx: click.Context,
    artifacts: tuple[Path, ...],
    transfer: bool | None,
    out: Path | None,
    resume: bool,
    append: bool,
    report: Path | None,
    as_json: bool,
    **choices: Any,
) -> None:
    """Measure the models of each ARTIFACT against each other, taking turns run by run.

    Every case gets fresh processes of its own, which are alive together and run A B A B …,
    after a warm-up; so the machine's moods meet all alike. Ratios come from pairs of
    neighbouring runs, with a 95 % interval. With an unshared baseline in the artifact
    (export with --with-baseline) each model is compared with it; with several artifacts,
    also with the first. With --data, each round of turns runs one of the file's texts, and a
    model that was calibrated to leave early is compared with itself through all layers, as
    int8-exit with int8. What cannot be measured is a record too. Ctrl-C keeps what was
    measured, and --resume goes on from there.

    The exit code is 0; 1 if nothing could be measured or outputs differ from the
    artifact's reference vectors; 130 after Ctrl-C.
    """
    from exporter.benchmark import Bench, BenchmarkOptions, InstalledRuntimes, summarize
    from exporter.benchmark.prepare import prepare
    from exporter.cli.bench_view import bench_progress, print_bench
    from exporter.packages import cache_folder

    if (resume or append) and out is None:
        raise click.UsageError("--resume and --append need --out")
    _check_writable(out, report, add=resume or append)
    command = command_line(ctx)
    lists = {name: value for name, value in choices.items() if value is not None}
    options = BenchmarkOptions(**lists, command=command)
    launcher = InstalledRuntimes()
    with TemporaryDirectory(prefix="albert-export-") as work:
        with progress_steps() as step:
            prepared = prepare(
                artifacts,
                options,
                launcher,
                cache=cache_folder(),
                work=Path(work),
                transfer=transfer,
                resume=out if resume else None,
                progress=step,
            )
        records = list(prepared.held)
        with bench_progress() as progress:
            measuring = Bench(prepared.runs, launcher, options, progress)
            ended = _collect(measuring, records, out, add=resume or append)
    notices = [*prepared.notices, *measuring.notices]
    summaries = summarize(records)
    if as_json:
        document = {
            "records": [json.loads(_line(record)) for record in records],
            "summary": [summary.to_dict() for summary in summaries],
            "notices": notices,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print_bench(summaries, notices)
    if report is not None and records:
        from exporter.report import render_html

        page = render_html(records, command=command, manifests=prepared.manifests)
        write_atomically(report, page.encode())
        click.echo(f"report: {report}", err=as_json)
    if isinstance(ended, KeyboardInterrupt):
        ctx.exit(130)
    if ended is not None:
        raise click.ClickException(f"{ended} with --resume") from ended
    _judge(records)


def _collect(
    measuring: Bench, records: list[Measurement], out: Path | None, *, add: bool
) -> KeyboardInterrupt | BenchmarkError | None:
    """Measure into ``records`` and the file; return what ended it early.

    That is Ctrl-C, or a file that takes no more: what was measured is shown all the same.
    """
    from exporter.benchmark import ResultsWriter

    opened = ResultsWriter(out, add=add, notice=measuring.notices.append) if out else nullcontext()
    failure = None
    with _stop_as_interruption(), opened as writer:
        try:
            for record in measuring.records():
                records.append(record)
                try:
                    if writer is not None and failure is None:
                        writer.write(record)
                except BenchmarkError as error:
                    failure = error
                    measuring.stop()  # the others of its run are still to come
        except KeyboardInterrupt as stop:
            return stop
    return failure


@contextmanager
def _stop_as_interruption() -> Iterator[None]:
    """Take SIGTERM, and the terminal's end, like Ctrl-C: no process is left behind, and no
    record lost."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup asks for
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_line(ctx: click.Context) -> str:
    """Write the command that was given, with the options that are not at their defaults."""
    words = ["albert-export", "bench"]
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        source = ctx.get_parameter_source(param.name or "")
        if source is not None and source.name == "DEFAULT":
            continue
        if isinstance(param, click.Argument):
            words += [str(part) for part in value or ()]
        elif isinstance(value, bool):
            words.append(param.opts[0] if value else param.secondary_opts[0])
        elif value is not None:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [param.opts[0], text]
    return shlex.join(words)


def _check_writable(out: Path | None, report: Path | None, *, add: bool) -> None:
    """Refuse, before an hour of measuring, what could not be written after it."""
    from exporter.benchmark import ResultsWriter

    for path in (out, report):
        if path is not None and not path.absolute().parent.is_dir():
            raise click.UsageError(f"{path}: there is no folder {path.absolute().parent}")
    if out is not None and report is not None and out.resolve() == report.resolve():
        raise click.UsageError("--out and --report name the same file")
    if report is not None:
        check_report_target(report)
    if out is not None:
        ResultsWriter(out, add=add).close()


def _line(record: Measurement) -> str:
    from exporter.records import to_json

    return to_json(record)


def _judge(records: list[Measurement]) -> None:
    """Fail where a model computes something else on this device, or nothing was measured."""
    wrong = [record.case for record in records if record.check.status == "failed"]
    if wrong:
        names = dict.fromkeys(
            f"{case.artifact} {case.variant} on {case.browser or case.runtime}" for case in wrong
        )
        raise click.ClickException(f"outputs differ from the reference vectors: {', '.join(names)}")
    if not any(record.status == "measured" for record in records):
        raise click.ClickException("nothing could be measured")
