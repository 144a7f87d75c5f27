"""The results of ``run.py`` as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["document"]

_PLACES = {"cpu": "CPU", "node": "Node, WebAssembly"}


def document(results: Mapping[str, Any]) -> str:
    """Return the whole text."""
    parts = (_latency, _accuracy, _curve, _same, _batches)
    return "\n".join(line for part in parts for line in part(results))


def _latency(results: Mapping[str, Any]) -> Iterator[str]:
    device = results["device"]
    yield "# Early exit on the demo model"
    yield ""
    yield (
        f"{device['cpu']}, {device['system']}, 1 thread; {results['sessions']} fresh processes of "
        f"each file. Sentences of {', '.join(results['data'])}: odd lines chose the threshold (at "
        f"most {results['max_loss']:g} points lost) and gave the curves; even lines gave every "
        f"other figure, {results['latency'][0]['sentences']:,} of them the latencies. One sentence "
        "at a time, all files in turns for each, another part of them in each process; mean "
        "latency, with the 95 % interval of its ratio to the file without an exit."
    )
    yield ""
    yield "| runtime | precision | file | threshold | layers mean, p90 | mean ms | p90 ms | ratio |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for case in results["latency"]:
        for arm in case["arms"]:
            calibrated = arm["arm"] == "calibrated"
            layers = f"{case['mean_layers']:.2f}, {case['p90_layers']:g}" if calibrated else "all"
            ratio = arm["ratio"]
            yield (
                f"| {_PLACES[case['runtime']]} | {case['precision']} | {arm['arm']} | "
                f"{case['threshold'] if calibrated else ''} | {layers} | {arm['mean_ms']:.2f} | "
                f"{arm['p90_ms']:.2f} | {ratio['value']:.3f} ({ratio['low']:.3f} to "
                f"{ratio['high']:.3f}) |"
            )
    yield ""
    yield (
        "*never leaves*: the default, the head runs once. *looks, never leaves*: a threshold that "
        "no sentence meets, the head runs after every pass."
    )
    yield ""


def _accuracy(results: Mapping[str, Any]) -> Iterator[str]:
    yield "Accuracy on sentences that played no part in choosing the threshold:"
    yield ""
    yield (
        "| data | sentences | model | accuracy | 95 % interval | points to fp32 | 95 % interval | "
        "layers mean, p90 |"
    )
    yield "|---|--:|---|--:|--:|--:|--:|--:|"
    for data, evaluation in results["evaluations"].items():
        for record, summary in zip(evaluation["records"], evaluation["summary"], strict=True):
            low, high = record["interval_95"]
            difference, layers = " | ", "all"
            if summary["difference"] is not None:
                bounds = [100 * bound for bound in summary["difference_95"]]
                points = f"{100 * summary['difference']:+.2f}"
                difference = f"{points} | {bounds[0]:+.1f} to {bounds[1]:+.1f}"
            if record["layers"] is not None:
                layers = f"{record['layers']['mean']:.2f}, {record['layers']['p90']:g}"
            yield (
                f"| {data} | {record['rows']:,} | {record['variant']} | "
                f"{summary['accuracy']:.1%} | {low:.1%} to {high:.1%} | {difference} | {layers} |"
            )
    yield ""


def _curve(results: Mapping[str, Any]) -> Iterator[str]:
    for variant, calibration in results["calibration"].items():
        yield f"Curve of {variant}, on the half that chose {calibration['value']:g}:"
        yield ""
        yield "| threshold | accuracy | points lost | 95 % interval | layers | p90 | of all, ms |"
        yield "|--:|--:|--:|--:|--:|--:|--:|"
        for point in calibration["curve"]:
            low, high = point["loss_95"]
            yield (
                f"| {point['value']:g} | {point['accuracy']:.1%} | {point['loss']:+.2f} | "
                f"{low:+.1f} to {high:+.1f} | {point['mean_layers']:.2f} | "
                f"{point['p90_layers']:g} | {point['relative_ms']:.2f} |"
            )
        yield ""


def _same(results: Mapping[str, Any]) -> Iterator[str]:
    agreement = results["agreement"]
    yield f"Exits of {agreement['sentences']:,} sentences in onnxruntime and in PyTorch, fp32:"
    yield ""
    yield (
        "| threshold | same layer | left after pass 1, 2, … | others: distance | "
        "largest difference of logits |"
    )
    yield "|--:|--:|---|---|--:|"
    for row in agreement["thresholds"]:
        others = ", ".join(f"{gap:.1e}" for gap in row["distances_of_others"]) or "none"
        counts = ", ".join(str(count) for count in row["layers"])
        yield (
            f"| {row['threshold']:g} | {row['equal']:,} | {counts} | {others} | "
            f"{row['largest_difference']:.1e} |"
        )
    yield ""


def _batches(results: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Batches take as many passes as their slowest row. A row that is done can keep its answer "
        "or go on with the others; files keep it, so that a row's answer does not depend on "
        "what else is in its batch:"
    )
    yield ""
    yield "| threshold | rows | passes | accuracy, keeps | accuracy, goes on |"
    yield "|--:|--:|--:|--:|--:|"
    for row in results["batches"]:
        yield (
            f"| {row['threshold']:g} | {row['size']} | {row['passes']:.2f} | {row['keeps']:.1%} | "
            f"{row['goes_on']:.1%} |"
        )
    yield ""
