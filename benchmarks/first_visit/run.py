"""What the demo page costs a visitor, at the first visit and at the second.

    python -m benchmarks.first_visit.run [--rounds 3] [--artifact FOLDER]

``albert-export serve --https --log`` serves the demo model; Chromium accepts its certificate as a
person does, which leaves it without a service worker and without a cache of its own. Each round
of each precision is a fresh profile: open the page, press the version's button, wait for the
answer; then the same in a new tab. Bytes are the log's, the times those that the page shows.
Writes ``results.json`` and ``results.md`` beside this file; takes about two minutes.
"""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click

from exporter.packages import RUNTIME
from exporter.pipeline import ExportOptions, export_model
from exporter.runtimes.device import describe_device
from tests.web.driving import driven
from tests.web.secure import SecureServer, serving_securely

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / "exporter" / "demo_model" / "model.pt"
PRECISIONS = ("fp32", "fp16", "int8", "int4")


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--artifact", type=click.Path(path_type=Path), help="Instead of exporting anew.")
def main(rounds: int, artifact: Path | None) -> None:
    """Visit with every precision, and write what it cost."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if artifact is None:
            options = ExportOptions(precisions=PRECISIONS, elastic_depth=True)
            artifact = export_model(MODEL, folder / "demo", options).folder
        with serving_securely(artifact, folder / "log.jsonl") as server:
            # In turns: a drift of the machine's speed meets all alike.
            visits = [
                (precision, _visit_twice(server, precision))
                for _ in range(rounds)
                for precision in PRECISIONS
            ]
    rows = [_row(name, [v for p, v in visits if p == name]) for name in PRECISIONS]
    with driven("chromium") as browser:
        engine = f"{browser.product.capitalize()} {browser.version}"
    device = describe_device(
        engine=engine, runtime=RUNTIME.package, runtime_version=RUNTIME.version
    )
    created = datetime.now(UTC).date().isoformat()
    results = {
        "created": created,
        "cpu": device.cpu,
        "cores": device.cores,
        "system": device.system,
        "engine": engine,
        "runtime": f"{RUNTIME.package} {RUNTIME.version}",
        "rounds": rounds,
        "rows": rows,
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (HERE / "results.md").write_text(document(results), encoding="utf-8")


def document(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# First and second visit of the demo page",
        "",
        f"{results['created']}, {results['cpu']}, {results['cores']} cores, {results['system']}, "
        f"{results['engine']}, {results['runtime']}; medians of {results['rounds']} fresh "
        "profiles. Over https with a certificate that was clicked through, brotli, on the "
        "loopback interface: the times hold no network.",
        "",
        "    python -m benchmarks.first_visit.run",
        "",
        "| version | model, tokenizer KB | runtime, page KB | second visit KB | first answer s "
        "| at the second visit s |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in results["rows"]:
        model, rest, second = (
            f"{row[key] / 1000:,.0f}" for key in ("model_bytes", "rest_bytes", "second_bytes")
        )
        first_s, second_s = (f"{row[key] / 1000:.2f}" for key in ("first_ms", "second_ms"))
        lines.append(
            f"| {row['precision']} | {model} | {rest} | {second} | {first_s} | {second_s} |"
        )
    lines += [
        "",
        "KB are 1,000 bytes on the wire, heads of answers included. First answer: from the click "
        "to the answer, download, start of WebAssembly and first run included.",
        "",
    ]
    return "\n".join(lines)


def _row(precision: str, visits: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "precision": precision,
        **{key: median(visit[key] for visit in visits) for key in visits[0]},
        "visits": visits,
    }


def _visit_twice(server: SecureServer, precision: str) -> dict[str, float]:
    with driven("chromium") as browser:
        url = f"{server.url}/demo/"
        figures: dict[str, float] = {}
        for visit in ("first", "second"):
            start = len(server.transfers())
            if visit == "first":
                browser.open(url, lasting=True)
            else:
                browser.do("visit", url=url)
            browser.wait(
                "document.title.includes('albert-export') && "
                "!document.querySelector('#start-button').disabled"
            )
            row = f"tr[data-variant='{precision}']"
            browser.click(f"{row} button")
            cell = f'document.querySelector("{row}[data-active] [data-ms]")'
            # Who has read the answer, goes; by then each answer's time is there, too.
            browser.wait(f"{cell} && document.querySelector('[data-active] td:nth-child(5) .sub')")
            figures[f"{visit}_ms"] = float(browser.evaluate(f"{cell}.dataset.ms"))
            transfers = server.transfers(start)
            model = sum(t["sent_bytes"] for t in transfers if t["path"].startswith("/f/"))
            total = sum(t["sent_bytes"] for t in transfers)
            if visit == "first":
                figures |= {"model_bytes": model, "rest_bytes": total - model}
            else:
                figures["second_bytes"] = total
        return figures


if __name__ == "__main__":
    main()
