from __future__ import annotations

from collections.abc import Sequence

import pytest

from exporter.errors import BenchmarkError
from exporter.evaluation.examples import Example, Examples
from exporter.evaluation.labels import class_names, resolve_labels

SENTIMENT = ("negative", "positive")


def labelled(*labels: str) -> Examples:
    rows = tuple(Example("text", label, line) for line, label in enumerate(labels, start=2))
    return Examples("d.csv", "0" * 64, rows)


@pytest.mark.parametrize(
    ("labels", "names", "count", "classes"),
    [
        (("positive", "negative"), SENTIMENT, 2, [1, 0]),
        (("Positive", "NEGATIVE"), SENTIMENT, 2, [1, 0]),
        (("1", "0", "positive"), SENTIMENT, 2, [1, 0, 1]),
        (("2", "0"), None, 3, [2, 0]),
        (("LABEL_1", "label_0"), ("LABEL_0", "LABEL_1"), 2, [1, 0]),
        (("3", "1"), ("1", "2", "3"), 3, [2, 0]),  # names that are numbers are names
        (("a", "A"), ("a", "A"), 2, [0, 1]),  # the exact name comes first
        (("true", "false"), ("True", "False"), 2, [0, 1]),  # whatever the order
    ],
)
def test_labels_are_names_or_indices(
    labels: Sequence[str], names: Sequence[str] | None, count: int, classes: list[int]
) -> None:
    truth = resolve_labels(labelled(*labels), names, count)
    assert truth.classes.tolist() == classes
    assert truth.notice is None


def test_counts_and_majority_follow_from_the_labels() -> None:
    truth = resolve_labels(labelled("1", "2", "2", "2"), ("a", "b", "c"), 3)
    assert truth.names == ("a", "b", "c")
    assert truth.counts == (0, 1, 3)
    assert truth.majority == 0.75


@pytest.mark.parametrize("names", [None, ("LABEL_0", "LABEL_1")])
def test_names_that_the_model_lacks_are_taken_in_alphabetical_order_and_said_so(
    names: Sequence[str] | None,
) -> None:
    truth = resolve_labels(labelled("true", "false"), names, 2)
    assert truth.notice is not None
    assert truth.notice.endswith("taken in alphabetical order: 0 = false, 1 = true")
    truth = resolve_labels(labelled("pos", "neg", "Pos"), names, 2)
    assert truth.classes.tolist() == [1, 0, 1]
    assert truth.notice is not None
    assert truth.notice.endswith("taken in alphabetical order: 0 = neg, 1 = Pos")


@pytest.mark.parametrize(
    ("labels", "names", "count", "message"),
    [
        (("0", "pos"), SENTIMENT, 2, "line 3: the model knows no label 'pos'; it has negative, "),
        (("neg", "pos"), SENTIMENT, 2, "line 2: the model knows no label 'neg'; it has negative, "),
        (("0", "2"), SENTIMENT, 2, "line 3: the model knows no label '2'"),
        (("0", "true"), SENTIMENT, 2, "line 3: the model knows no label 'true'; it has negative"),
        (("true", "false"), None, 3, "line 2: the model knows no label 'true'; it has 0 to 2"),
        (("-1",), None, 2, "line 2: the model knows no label '-1'; it has 0 to 1"),
        (("neg", "pos", "odd"), None, 2, "line 2: the model knows no label 'neg'"),
        (("neg", "neg"), None, 2, "line 2: the model knows no label 'neg'"),
        (("neg", "1"), None, 2, "line 2: the model knows no label 'neg'"),
        (("9" * 5000,), None, 2, "the model knows no label '9999"),
        (("0",), SENTIMENT, 3, "config.json names 2 labels, but the logits have 3"),
    ],
)
def test_a_label_that_the_model_does_not_know_is_refused_with_its_line(
    labels: Sequence[str], names: Sequence[str] | None, count: int, message: str
) -> None:
    with pytest.raises(BenchmarkError) as caught:
        resolve_labels(labelled(*labels), names, count)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_class_names_come_in_the_order_of_their_indices() -> None:
    assert class_names({"id2label": {"1": "b", "0": "a", "10": "k"} | _rest()}) == tuple(
        "abcdefghijk"
    )
    assert class_names({"model_type": "albert"}) is None


@pytest.mark.parametrize("named", [{}, {"1": "b"}, {"x": "a"}, ["a", "b"], "a"])
def test_class_names_with_gaps_are_refused(named: object) -> None:
    with pytest.raises(BenchmarkError, match="id2label is not"):
        class_names({"id2label": named})


def _rest() -> dict[str, str]:
    return {str(index): "abcdefghij"[index] for index in range(2, 10)}
