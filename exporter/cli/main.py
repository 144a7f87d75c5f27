"""``albert-export`` and its commands. Imports no torch and no onnxruntime."""

from __future__ import annotations

import click

from exporter import __version__
from exporter.cli.bench_command import bench
from exporter.cli.calibrate_command import calibrate
from exporter.cli.distill_command import distill
from exporter.cli.evaluate_command import evaluate
from exporter.cli.export_command import export
from exporter.cli.inspect_command import inspect
from exporter.cli.report_command import report
from exporter.cli.serve_command import serve

__all__ = ["main"]


class DefaultCommandGroup(click.Group):
    """A group whose first argument may be the model: ``export`` is then understood."""

    DEFAULT = "export"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in front of anything that is no command of ours."""
        own = {*self.commands, *ctx.help_option_names, "--version"}
        if args and args[0] not in own:
            args = [self.DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=DefaultCommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="'albert-export MODEL [OPTIONS]' is short for 'albert-export export MODEL [OPTIONS]'.",
)
@click.version_option(__version__, prog_name="albert-export")
def main() -> None:
    """Export shared-layer transformers to ONNX, small and provably unchanged.

    \b
    albert-export model.pt --dedupe       export a checkpoint
    albert-export inspect model.onnx      see what a file wastes
    albert-export evaluate model-onnx     how often it is right on labelled text
    albert-export calibrate model-onnx    when to leave the layers early
    albert-export bench model-onnx        measure it on the CPU, in Node and in browsers
    albert-export report results.jsonl    turn measurements into one page
    albert-export serve model-onnx        try it in a browser, measure it on a phone
    albert-export distill --teacher DIR   train a shared student from an unshared teacher
    """


for command in (export, inspect, evaluate, calibrate, bench, report, serve, distill):
    main.add_command(command)
