from __future__ import annotations

import json
from pathlib import Path

from exporter.evaluation.examples import read_examples
from exporter.training.data import Corpus, Labelled, Rated
from exporter.training.labelled_files import write_labelled

CORPUS = Corpus(
    training=(Rated("seen", 4.0),),
    development=(Rated("seen too", 4.0),),
    held_out=(
        Rated('"Lovely", and\nlong', 1.0),
        Rated("So so", 0.9),
        Rated("Not so", -0.9),
        Rated("Très mauvais", -1.0),
    ),
    foreign={
        "amazon": (Labelled("Works.", True),),
        "yelp": (Labelled("Cold.", False), Labelled("Warm.", True)),
    },
)


def test_clearly_rated_and_foreign_sentences_are_written_with_their_labels(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    held_out, foreign = folder / "held-out.jsonl", folder / "foreign.jsonl"
    assert write_labelled(CORPUS, folder) == {held_out: 2, foreign: 3}
    assert [json.loads(line) for line in held_out.read_text(encoding="utf-8").splitlines()] == [
        {"text": '"Lovely", and\nlong', "label": "positive", "rating": 1.0},
        {"text": "Très mauvais", "label": "negative", "rating": -1.0},
    ]
    assert [json.loads(line) for line in foreign.read_text(encoding="utf-8").splitlines()] == [
        {"text": "Works.", "label": "positive", "collection": "amazon"},
        {"text": "Cold.", "label": "negative", "collection": "yelp"},
        {"text": "Warm.", "label": "positive", "collection": "yelp"},
    ]


def test_what_is_written_is_what_evaluation_reads(tmp_path: Path) -> None:
    for path, count in write_labelled(CORPUS, tmp_path).items():
        rows = read_examples(path).rows
        assert len(rows) == count
        assert {row.label for row in rows} == {"positive", "negative"}
