"""The JSON form: the derived figures, for other programs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import msgspec

from exporter.report.build import Report, Section
from exporter.report.figures import Row, Setting
from exporter.report.sizes import Model

__all__ = ["SCHEMA_VERSION", "json_document"]

SCHEMA_VERSION = 1


def json_document(report: Report) -> str:
    """Return the report's figures as JSON: milliseconds, bytes, ratios below 1 are better.

    What does not exist is ``null``. Raw samples stay in the results files.
    """
    content = {
        "schema": SCHEMA_VERSION,
        "kind": "albert-export report",
        "tool": report.tool,
        "title": report.title,
        "days": report.days,
        "records": report.records,
        "artifacts": [_section(section) for section in report.sections],
        "side_by_side": [
            {**_section(section), "artifact": section.artifacts} for section in report.side_by_side
        ],
        "devices": [
            {
                "number": line.number,
                "name": line.name,
                "days": line.days,
                "records": line.records,
                **msgspec.to_builtins(line.device),
                "timer_resolution_ms": line.timer_ms,
            }
            for line in report.devices
        ],
        "incidents": [asdict(incident) for incident in report.incidents],
        "doubts": [{"name": name, "text": text} for name, text in report.doubts],
        "incomparable": report.incomparable,
        "notices": [asdict(notice) for notice in report.notices],
        "commands": [command for command, _ in report.commands],
        "command": report.command,
    }
    return json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _section(section: Section) -> dict[str, Any]:
    return {
        "artifact": section.artifact,
        "headline": asdict(section.headline),
        "models": [_model(model) for model in section.models],
        "settings": [_setting(setting) for setting in section.settings],
        "evaluations": [
            {**msgspec.to_builtins(item), "accuracy": item.accuracy}
            for group in section.evaluations
            for item in group
        ],
    }


def _model(model: Model) -> dict[str, Any]:
    return {
        "variant": model.variant,
        "name": model.name,
        **msgspec.to_builtins(model.file),
        "against_baseline": model.against_baseline,
        "coverage": model.coverage,
    }


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "device": setting.number,
        "place": setting.place,
        **asdict(setting.workload),
        "date": setting.date,
        "run": setting.run,
        "variants": [_row(row) for row in setting.rows],
    }


def _row(row: Row) -> dict[str, Any]:
    record = row.record
    return {
        "variant": row.variant,
        "sha256": record.model.sha256,
        "status": record.status,
        "error": record.error,
        "latency_ms": None if row.spread is None else asdict(row.spread),
        "times_ms": msgspec.to_builtins(record.times),
        "memory_bytes": msgspec.to_builtins(record.memory),
        "check": msgspec.to_builtins(record.check),
        "threads_used": record.threads_used,
        "layers": msgspec.to_builtins(record.layers),
        "flags": record.flags,
        "comparisons": [
            {
                "against": c.against,
                "time": None
                if c.time is None
                else {
                    "value": c.time.value,
                    "low": c.time.low if c.interval_known else None,
                    "high": c.time.high if c.interval_known else None,
                    "pairs": c.time.pairs,
                    "sessions": c.time.sessions,
                },
                "verdict": c.verdict,
                "missing": c.missing,
                "session": c.session,
                "memory": c.memory,
                "file": c.file,
            }
            for c in row.comparisons
        ],
    }


def _finite(value: Any) -> Any:
    """Replace what JSON has no word for by ``null``."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
