"""The committed demo model, as it is found in a clone and in an installed package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from benchmarks.demo_model import table
from benchmarks.demo_model.table import BEGIN, END, tables
from exporter.artifact import sha256_file
from exporter.errors import CheckpointError
from exporter.models import EncoderConfig, SharedEncoder, count_parameters
from exporter.packages import cache_folder
from exporter.training.batches import encode, pad
from exporter.training.card import check_figures, read_part
from exporter.training.data import load_corpus
from exporter.training.demo import DEMO_FOLDER, load_demo, save_demo
from exporter.training.evaluate import evaluate, positive_probability
from exporter.training.labelled_files import FOREIGN_FILE, HELD_OUT_FILE

EXPORTED = Path(table.__file__).parent

POSITIVE = (
    "A wonderful film with great performances.",
    "The food was delicious and the staff were friendly.",
    "Great phone, I love it.",
    "One of the best movies of the year.",
)
NEGATIVE = (
    "A dull, lifeless mess.",
    "The worst movie I have ever seen.",
    "It broke after two days, very disappointing.",
    "The service was terrible and the food was awful.",
)


@pytest.fixture(scope="module")
def demo() -> tuple[SharedEncoder, Tokenizer]:
    return load_demo()


def test_the_checkpoint_is_small_and_holds_tensors_only() -> None:
    path = DEMO_FOLDER / "model.pt"
    assert path.stat().st_size <= 8_100_000
    content = torch.load(path, weights_only=True)
    assert set(content) == {"config", "state_dict"}
    assert {tensor.dtype for tensor in content["state_dict"].values()} == {torch.float16}


def test_it_shares_everything_over_six_passes(demo: tuple[SharedEncoder, Tokenizer]) -> None:
    model, tokenizer = demo
    assert str(model.config.sharing) == "all"
    assert model.config.num_hidden_layers == 6
    assert model.config.labels == ("negative", "positive")
    assert tokenizer.get_vocab_size() == model.config.vocab_size <= 14_000
    count = count_parameters(model)
    assert count.unique < count.total / 2
    assert count.unique < 5_000_000  # in int8, a byte each


def test_obvious_sentences_are_labelled_right(demo: tuple[SharedEncoder, Tokenizer]) -> None:
    probabilities = positive_probability(*demo, [*POSITIVE, *NEGATIVE]).tolist()
    assert min(probabilities[: len(POSITIVE)]) > 0.6
    assert max(probabilities[len(POSITIVE) :]) < 0.4


def test_padding_and_company_do_not_change_a_sentence(
    demo: tuple[SharedEncoder, Tokenizer],
) -> None:
    model, tokenizer = demo
    sequences = encode(tokenizer, [*POSITIVE, "word " * 300, "", *NEGATIVE])
    assert max(len(sequence) for sequence in sequences) == model.config.max_position_embeddings
    ids, mask = pad(sequences)
    with torch.no_grad():
        together = model(ids, mask)
        alone = torch.cat([model(torch.tensor([sequence])) for sequence in sequences])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_the_model_reaches_its_floor_and_gives_the_figures_of_its_card(
    demo: tuple[SharedEncoder, Tokenizer],
) -> None:
    scores = evaluate(*demo, load_corpus(cache_folder()))
    assert scores["held-out, at least 1.0"].sentences > 800
    assert scores["held-out, at least 1.0"].accuracy >= 0.85
    assert scores["amazon, imdb and yelp"].sentences == 3000
    assert scores["amazon, imdb and yelp"].accuracy >= 0.885
    check_figures(DEMO_FOLDER, scores)


def test_the_card_has_the_figures_of_the_exported_files_and_they_are_of_this_model() -> None:
    results = json.loads((EXPORTED / "results.json").read_text(encoding="utf-8"))
    assert read_part(DEMO_FOLDER, BEGIN, END) == tables(results)
    assert results["source_sha256"]["student"] == sha256_file(DEMO_FOLDER / "model.pt")
    metrics = json.loads((DEMO_FOLDER / "metrics.json").read_text(encoding="utf-8"))["scores"]
    assert {
        row["data"]: (row["correct"], row["rows"])
        for row in results["files"]
        if (row["who"], row["variant"]) == ("student", "fp32")
    } == {
        file: (metrics[name]["correct"], metrics[name]["sentences"])
        for file, name in (
            (HELD_OUT_FILE, "held-out, at least 1.0"),
            (FOREIGN_FILE, "amazon, imdb and yelp"),
        )
    }


def test_the_figures_of_the_exported_files_agree_with_each_other() -> None:
    results = json.loads((EXPORTED / "results.json").read_text(encoding="utf-8"))
    files = {(row["who"], row["variant"], row["data"]): row for row in results["files"]}
    for row in results["depths"]:
        assert row["correct"][-1] == files["student", row["variant"], row["data"]]["correct"]
    for pair in results["teacher_fp32_and_student_int8"]:
        teacher = files["teacher", "fp32", pair["data"]]
        student = files["student", "int8", pair["data"]]
        assert pair["only_second"] - pair["only_first"] == student["correct"] - teacher["correct"]
    fp32 = {row["data"]: row["correct"] for row in results["depths"] if row["variant"] == "fp32"}
    for pair in results["fp32_all_passes_and_one"]:
        every, one = fp32[pair["data"]][-1], fp32[pair["data"]][0]
        assert pair["only_second"] - pair["only_first"] == one - every


def test_transformers_reads_the_tokenizer_with_the_same_ids(
    demo: tuple[SharedEncoder, Tokenizer],
) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(DEMO_FOLDER)
    texts = [*POSITIVE, *NEGATIVE, "Ünïcode ﬁlm — 5/5!", "word " * 300]
    assert loaded(texts, truncation=True)["input_ids"] == encode(demo[1], texts)
    assert loaded.pad_token_id == demo[0].config.pad_token_id


def _small() -> SharedEncoder:
    config = EncoderConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        head="sequence_classification",
        labels=("negative", "positive"),
    )
    return SharedEncoder(config)


def test_a_saved_model_comes_back_in_eval_mode_and_saves_to_the_same_bytes(
    demo: tuple[SharedEncoder, Tokenizer], tmp_path: Path
) -> None:
    model = _small()
    save_demo(model, demo[1], tmp_path)
    loaded, tokenizer = load_demo(tmp_path)
    assert not loaded.training
    assert tokenizer.to_str() == demo[1].to_str()
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True)
    )
    names = ["model.pt", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    before = (tmp_path / "model.pt").read_bytes()
    save_demo(loaded, tokenizer, tmp_path)
    assert (tmp_path / "model.pt").read_bytes() == before


def test_half_the_bytes_keep_three_digits_and_come_back_as_float32(
    demo: tuple[SharedEncoder, Tokenizer], tmp_path: Path
) -> None:
    model = _small()
    save_demo(model, demo[1], tmp_path / "whole")
    save_demo(model, demo[1], tmp_path / "half", half=True)
    stored = torch.load(tmp_path / "half" / "model.pt", weights_only=True)["state_dict"]
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert next(model.parameters()).dtype == torch.float32  # the caller's stays as it was
    loaded, _ = load_demo(tmp_path / "half")
    for name, value in model.state_dict().items():
        assert loaded.state_dict()[name].dtype == torch.float32
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=1e-3, atol=1e-6)


def test_a_missing_or_foreign_checkpoint_is_named(
    demo: tuple[SharedEncoder, Tokenizer], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"holds no model\.pt"):
        load_demo(tmp_path)
    shutil.copyfile(DEMO_FOLDER / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "model.pt").write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match=r"model\.pt is not a demo checkpoint"):
        load_demo(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"model\.pt is not a demo checkpoint: it is damaged$"
    ):
        load_demo(tmp_path)
    torch.save({"config": _small().config.to_dict(), "state_dict": {}}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"model\.pt is not a demo checkpoint.*Missing key"):
        load_demo(tmp_path)
