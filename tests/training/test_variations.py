from __future__ import annotations

import torch

from exporter.training.variations import similar_words, vary
from tests.training.tiny import teacher

SIMILAR = {"film": ["movie", "plot"], "lovely": ["superb"], "the": ["a"]}


def test_similar_words_are_the_nearest_pieces_and_never_the_word_itself() -> None:
    judge = teacher()
    vocabulary = judge.tokenizer.get_vocab()
    table = judge.model.get_input_embeddings().weight
    with torch.no_grad():
        table[vocabulary["film"]] = 2 * table[vocabulary["story"]]  # as long as it likes
        table[vocabulary["plot"]] = -table[vocabulary["story"]]
    found = similar_words(judge, ["A story, a FILM; and unheard words"], count=3)
    assert set(found) == {"story", "film"}  # pieces, and used
    assert found["story"][0] == "film"
    assert found["film"][0] == "story"
    assert all(len(others) == 3 and word not in others for word, others in found.items())
    assert "plot" not in found["story"]


def test_about_the_asked_share_of_known_words_is_replaced_by_similar_ones() -> None:
    (all_of_it,) = vary(["The film is LOVELY."], SIMILAR, share=1.0, seed=0)
    assert all_of_it in ("a movie is superb.", "a plot is superb.")
    words = " ".join(vary(["the film"] * 1000, SIMILAR, share=0.25, seed=0)).split()
    replaced = sum(word in ("a", "movie", "plot") for word in words)
    # Of 2,000 words; pairs in which nothing was replaced are not there.
    assert 430 < replaced < 570
    assert {"movie", "plot"} <= set(words)


def test_what_did_not_change_is_left_out_and_chance_follows_from_the_seed() -> None:
    assert vary(["Nothing known", "THE FILM"], SIMILAR, share=0.0, seed=0) == []
    assert vary(["Nothing known"], SIMILAR, share=1.0, seed=0) == []
    texts = ["the film is lovely"] * 50
    assert vary(texts, SIMILAR, share=0.5, seed=1) == vary(texts, SIMILAR, share=0.5, seed=1)
    assert vary(texts, SIMILAR, share=0.5, seed=1) != vary(texts, SIMILAR, share=0.5, seed=2)
