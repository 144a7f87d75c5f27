from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.artifact import sha256_file
from exporter.errors import VerificationError
from exporter.training.card import (
    BEGIN,
    END,
    check_figures,
    figures_table,
    read_part,
    write_figures,
    write_part,
)
from exporter.training.evaluate import Score
from exporter.training.sources import DataError

SCORES = {"held-out": Score(1000, 850, 0.5), "yelp": Score(200, 150, 0.55)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.pt").write_bytes(b"weights")
    (tmp_path / "README.md").write_text(f"# Card\n\n{BEGIN}\nold\n{END}\n\nLimits.\n")
    return tmp_path


def test_figures_are_rows_of_per_cent() -> None:
    assert figures_table(SCORES).splitlines()[2:] == [
        "| held-out | 1,000 | 85.0% | 82.7% to 87.1% | 50.0% | +35.0 points |",
        "| yelp | 200 | 75.0% | 68.6% to 80.5% | 55.0% | +20.0 points |",
    ]


def test_writing_replaces_the_marked_part_alone(folder: Path) -> None:
    write_figures(folder, SCORES)
    card = (folder / "README.md").read_text()
    assert card == f"# Card\n\n{BEGIN}\n\n{figures_table(SCORES)}\n\n{END}\n\nLimits.\n"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["model_sha256"] == sha256_file(folder / "model.pt")
    assert metrics["scores"]["yelp"] == {
        "sentences": 200,
        "correct": 150,
        "accuracy": 0.75,
        "interval_95": [0.685659, 0.804918],
        "majority_baseline": 0.55,
    }


def test_what_was_written_passes_its_own_check(folder: Path) -> None:
    write_figures(folder, SCORES)
    check_figures(folder, SCORES)


def test_a_figure_that_differs_is_shown_as_stated_and_as_measured(folder: Path) -> None:
    write_figures(folder, SCORES)
    with pytest.raises(
        VerificationError, match=r"README\.md states .*75\.0%.*, but measured was .*74\.5%"
    ):
        check_figures(folder, {**SCORES, "yelp": Score(200, 149, 0.55)})


def test_a_set_the_card_leaves_out_is_a_difference(folder: Path) -> None:
    write_figures(folder, SCORES)
    with pytest.raises(VerificationError, match="states '', but measured was"):
        check_figures(folder, {**SCORES, "imdb": Score(10, 5, 0.5)})


def test_stale_metrics_are_noticed_even_where_the_card_is_right(folder: Path) -> None:
    write_figures(folder, SCORES)
    metrics = folder / "metrics.json"
    metrics.write_text(metrics.read_text().replace('"correct": 150', '"correct": 151'))
    with pytest.raises(VerificationError, match=r"metrics\.json states .*151"):
        check_figures(folder, SCORES)


def test_figures_of_another_checkpoint_are_noticed_even_where_they_are_the_same(
    folder: Path,
) -> None:
    write_figures(folder, SCORES)
    (folder / "model.pt").write_bytes(b"other weights")
    with pytest.raises(VerificationError, match=r"metrics\.json states '\"model_sha256\": "):
        check_figures(folder, SCORES)


def test_a_card_without_the_marks_is_refused_before_anything_is_written(folder: Path) -> None:
    (folder / "README.md").write_text("# Card\n")
    with pytest.raises(DataError, match="does not mark where figures go"):
        write_figures(folder, SCORES)
    assert not (folder / "metrics.json").exists()


def test_a_folder_without_a_card_still_gets_its_metrics(folder: Path) -> None:
    (folder / "README.md").unlink()
    write_figures(folder, SCORES)
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.json", "model.pt"]
    with pytest.raises(DataError, match=r"holds no README\.md"):
        check_figures(folder, SCORES)


def test_another_part_has_marks_of_its_own(folder: Path) -> None:
    card = folder / "README.md"
    card.write_text(f"{card.read_text()}<!-- a -->old<!-- b -->\n")
    write_part(folder, "<!-- a -->", "<!-- b -->", "new")
    assert read_part(folder, "<!-- a -->", "<!-- b -->") == "new"
    assert card.read_text().endswith(f"old\n{END}\n\nLimits.\n<!-- a -->\n\nnew\n\n<!-- b -->\n")
