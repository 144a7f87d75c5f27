"""How often the models of an artifact are right on labelled text. No torch here."""

from exporter.evaluation.evaluate import (
    Evaluated,
    EvaluationOptions,
    EvaluationReport,
    evaluate_artifact,
)

__all__ = ["Evaluated", "EvaluationOptions", "EvaluationReport", "evaluate_artifact"]
