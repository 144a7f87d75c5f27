"""Measure models against each other: plan, interleaved runs, records, ratios.

``plan`` makes cases and runs from artifacts and options, ``run`` measures one run,
``measure`` all of them, ``statistics`` compares two measurements.
"""

from exporter.benchmark.launcher import InstalledRuntimes, Launcher
from exporter.benchmark.measure import Bench
from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.plan import Arm, Run, plan_runs
from exporter.benchmark.progress import Step
from exporter.benchmark.results_file import ResultsWriter, read_results
from exporter.benchmark.resume import remaining_runs
from exporter.benchmark.subjects import Subject, choose_subjects, model_file
from exporter.benchmark.summary import Summary, summarize
from exporter.benchmark.wire import with_wire_bytes
from exporter.ratios import Ratio, paired_ratio, ratio

__all__ = [
    "Arm",
    "Bench",
    "BenchmarkOptions",
    "InstalledRuntimes",
    "Launcher",
    "Ratio",
    "ResultsWriter",
    "Run",
    "Step",
    "Subject",
    "Summary",
    "choose_subjects",
    "model_file",
    "paired_ratio",
    "plan_runs",
    "ratio",
    "read_results",
    "remaining_runs",
    "summarize",
    "with_wire_bytes",
]
