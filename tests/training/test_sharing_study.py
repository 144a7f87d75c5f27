"""The study of sharing in small: its runs on real workers, and what is made of figures."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from distributed import Client
from torch.nn import functional

from benchmarks.sharing_tradeoff import classify, generate, performing
from benchmarks.sharing_tradeoff.causal import CausalEncoder
from benchmarks.sharing_tradeoff.engine import StudyError, connect, perform_all
from benchmarks.sharing_tradeoff.generate import pack
from benchmarks.sharing_tradeoff.places import Places
from benchmarks.sharing_tradeoff.pruning import pruned
from benchmarks.sharing_tradeoff.results import read_results
from benchmarks.sharing_tradeoff.settings import FULL, OTHER_START, SMOKE, Run, Study, TaskName
from benchmarks.sharing_tradeoff.texts import write_texts
from exporter.artifact import Artifact
from exporter.errors import VerificationError
from exporter.models import SharedEncoder, SharingScheme, count_parameters
from exporter.pipeline import ExportOptions, export_model
from exporter.training.data import Corpus, Labelled, Rated
from exporter.training.evaluate import positive_probability
from exporter.training.fine_tuning import FineTuningPlan
from exporter.training.loop import Schedule
from exporter.training.tokenizer import save_tokenizer, train_tokenizer
from tests.training.study_rows import result_row
from tests.training.tiny import NOUNS, RATINGS, teacher_folder


def _sentences(count: int, seed: int) -> tuple[Rated, ...]:
    rng = random.Random(seed)
    words = list(RATINGS)
    chosen = ((rng.choice(NOUNS), rng.choice(NOUNS), rng.choice(words)) for _ in range(count))
    return tuple(
        Rated(f"This {a} {number} with a {b} is {word}.", RATINGS[word])
        for number, (a, b, word) in enumerate(chosen, start=1000 * seed)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    foreign = {"yelp": tuple(Labelled(s.text, s.rating > 0) for s in _sentences(10, 3))}
    corpus = Corpus(_sentences(60, 1), (), _sentences(20, 2), foreign)
    more = [s.text for s in _sentences(200, 4)]
    write_texts(folder, corpus, [*(s.text for s in corpus.training), *more], more)
    return folder


def _measured(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    del content["cpu_s"]
    return content


def _kill_a_busy_worker(client: Client) -> None:
    while not (busy := [w for w, keys in client.processing().items() if "perform" in str(keys)]):
        time.sleep(0.1)
    time.sleep(1)
    (process,) = client.run(os.getpid, workers=busy[:1]).values()
    os.kill(process, signal.SIGKILL)


def test_two_workers_one_of_them_killed_give_what_one_worker_gives(
    folder: Path, tmp_path: Path
) -> None:
    # Of all that a run does only exporting takes long.
    some = dataclasses.replace(SMOKE, schemes=("all",), distilled=(True,), prunings=(0.5,))
    places = Places.of("classify", some, folder)
    teacher_folder(places.teacher(some.classify.teacher) / "teacher")
    with connect(None, 1, tmp_path / "one") as client:
        alone = perform_all(client, some, folder, tmp_path / "alone")
        # Dask's own 65,536 would give each step's memory back, to be asked for again.
        assert client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_").popitem()[1] == str(2**32)
    assert [path.stem for path in alone] == ["classify-all-distilled-0", "generate-all-distilled-0"]
    with (
        connect(None, 2, tmp_path / "two") as own,
        connect(own.scheduler.address, 1, tmp_path) as client,
        ThreadPoolExecutor() as threads,
    ):
        killed = threads.submit(_kill_a_busy_worker, own)
        together = perform_all(client, some, folder, tmp_path / "together")
        killed.result()
    for first, second in zip(alone, together, strict=True):
        assert _measured(first) == _measured(second)
    for row, task in zip(read_results(tmp_path / "alone", some).rows[::3], some.tasks, strict=True):
        known = result_row(task, "all", 0, True, 0.5, precision="fp32")
        assert row.keys() >= known.keys() - ({"loss"} if task == "classify" else set())


def test_a_teacher_is_kept_by_its_own_plan_whatever_else_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def demo_teacher(data_dir: Path, work: Path, plan: FineTuningPlan, told: Any) -> None:
        made.append((work, plan))

    made: list[tuple[Path, FineTuningPlan]] = []
    monkeypatch.setattr(classify, "demo_teacher", demo_teacher)
    for study in (FULL, dataclasses.replace(FULL, evaluation_batch=8), SMOKE):
        places = Places.of("classify", study, tmp_path)
        classify.make_teacher(tmp_path, study, places, lambda *step: None)
    (first, plan), (second, _), (other, quick) = made
    assert first == second != other
    assert (plan, quick) == (FULL.classify.teacher, SMOKE.classify.teacher)
    assert quick.schedule.epochs * quick.max_length < plan.schedule.epochs * plan.max_length / 4


def test_a_process_trains_one_model_at_a_time_however_many_threads_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched:
        def prepare(self, study: Study, places: Places) -> None:
            inside.append(places.base)
            assert len(inside) == 1
            time.sleep(0.05)
            inside.remove(places.base)

        def learn(self, study: Study, run: Run, places: Places) -> Any:
            self.prepare(study, places)
            raise LearnedError

    class LearnedError(Exception):
        pass

    def learn(run: Run) -> None:
        with pytest.raises(LearnedError):
            performing.perform(run, SMOKE, tmp_path, tmp_path)

    inside: list[Path] = []
    monkeypatch.setattr(performing, "TASKS", dict.fromkeys(SMOKE.tasks, Watched()))
    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(learn, run) for run in SMOKE.runs()]
        done += [threads.submit(performing.prepare, t, SMOKE, tmp_path) for t in SMOKE.tasks]
        assert len([future.result() for future in done]) == 10


def test_plain_runs_need_no_teacher_and_learn(tmp_path: Path) -> None:
    rated = [Rated(word, rating) for word, rating in RATINGS.items()] * 10
    write_texts(tmp_path, Corpus(tuple(rated), (), (), {}), [], [s.text for s in _sentences(99, 4)])
    schedule = Schedule(epochs=10, batch_size=4, learning_rate=5e-3, average_decay=0.0, threads=1)
    study = dataclasses.replace(
        SMOKE,
        classify=dataclasses.replace(SMOKE.classify, schedule=schedule),
        generate=dataclasses.replace(SMOKE.generate, schedule=schedule, passages=(32, 4)),
        max_length=20,
    )
    pieces = train_tokenizer(RATINGS, vocab_size=40, max_length=20)
    save_tokenizer(pieces, tmp_path)
    places = Places(tmp_path, tmp_path)

    model = classify.learn(study, Run("classify", "all", 0, False), places)
    right = positive_probability(model, pieces, list(RATINGS)).gt(0.5)
    assert right.tolist() == [rating > 0 for rating in RATINGS.values()]

    generator = generate.learn(study, Run("generate", "all", 0, False), places)
    passages = np.load(tmp_path / "passages.npz")
    ids = torch.from_numpy(passages["learned"].astype(np.int64))
    with torch.no_grad():
        following = generator(ids)[:, :-1].flatten(0, 1)
    loss = functional.cross_entropy(following, ids[:, 1:].flatten())
    assert loss < math.log(int(passages["pieces"])) - 1


def test_a_run_that_is_there_is_not_repeated_and_one_that_fails_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        key, status = "key", "error"

        def exception(self) -> Exception:
            return ValueError("no room\nand more")

    class Client:
        def nthreads(self) -> dict[str, int]:
            return {"worker": 1}

        def submit(self, *arguments: Any, **options: Any) -> Failing:
            submitted.append(arguments)
            return Failing()

    submitted: list[Any] = []
    monkeypatch.setattr("benchmarks.sharing_tradeoff.engine.as_completed", list)
    client: Any = Client()
    some = dataclasses.replace(SMOKE, schemes=("all",), tasks=("classify",), timed=False)
    for run in some.runs():
        content = {"study": some.digest("classify")}
        (tmp_path / f"{run.name}.json").write_text(json.dumps(content))
    assert len(perform_all(client, some, folder, tmp_path)) == 2
    assert submitted == []
    longer = dataclasses.replace(some, max_length=48)
    assert not any(performing.finished(run, longer, tmp_path) for run in longer.runs())
    timed = dataclasses.replace(some, timed=True)
    (plain,) = performing.missing(timed, tmp_path, tmp_path)
    assert plain == Run("classify", "all", 0, False)
    Places.of("classify", timed, tmp_path).artifact(plain).mkdir(parents=True)
    assert performing.missing(timed, tmp_path, tmp_path) == []
    (tmp_path / "classify-all-plain-0.json").unlink()
    with pytest.raises(StudyError, match=r"1 of 2 runs failed; classify-all-plain-0: no room$"):
        perform_all(client, some, folder, tmp_path)
    # Of what is ready, too, only what this run needs: no teacher is asked.
    (_, *ready), (_, *performed) = submitted
    assert ready == ["classify", dataclasses.replace(some, distilled=(False,)), folder]
    assert performed[0] == Run("classify", "all", 0, False)


def test_a_missing_artifact_is_made_and_the_results_that_are_there_stay(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(source: Path, destination: Path, options: ExportOptions) -> Artifact:
        exported.append(destination)
        return export_model(source, destination, options)

    exported: list[Path] = []
    monkeypatch.setattr(performing, "export_model", export)
    monkeypatch.setattr(classify, "evaluate", lambda *given: pytest.fail("evaluated"))
    some = dataclasses.replace(
        SMOKE, schemes=("all",), distilled=(False,), tasks=("classify",), prunings=(0.0, 0.5)
    )
    (run,) = some.runs()
    stands = json.dumps({"study": some.digest("classify")})
    (tmp_path / f"{run.name}.json").write_text(stands)
    assert performing.missing(some, folder, tmp_path) == [run]
    performing.prepare("classify", some, folder)
    assert performing.perform(run, some, folder, tmp_path).read_text() == stands
    assert exported == [Places.of("classify", some, folder).artifact(run)]
    kept = Artifact.load(exported[0])
    assert list(kept.models()) == list(some.precisions)
    # It is the one that is not pruned.
    weights = [t for t in onnx.load(kept.models()["fp32"]).graph.initializer if len(t.dims) == 2]
    assert weights
    assert not any((onnx.numpy_helper.to_array(t) == 0).any() for t in weights)
    assert performing.missing(some, folder, tmp_path) == []


def test_an_artifact_that_is_another_model_is_not_kept_for_one_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(source: Path, destination: Path, options: ExportOptions) -> Any:
        destination.mkdir(parents=True)
        record = {"variant": "fp32", "verification": {"verdict": "failed"}}
        return SimpleNamespace(folder=destination, manifest={"models": [record]})

    (run, *_) = SMOKE.runs()
    monkeypatch.setattr(performing, "export_model", export)
    monkeypatch.setattr(classify, "learn", lambda *given: None)
    monkeypatch.setattr(classify, "write_source", lambda *given: tmp_path)
    (tmp_path / f"{run.name}.json").write_text(json.dumps({"study": SMOKE.digest("classify")}))
    with pytest.raises(VerificationError, match=r"^classify-none-plain-0: the fp32 file is anoth"):
        performing.perform(run, SMOKE, tmp_path, tmp_path)
    assert run in performing.missing(SMOKE, tmp_path, tmp_path)


def test_the_runs_cross_schemes_seeds_and_distillation_and_have_names_of_their_own() -> None:
    runs = list(FULL.runs())
    assert len(runs) == len({run.name for run in runs}) == 6 * 3 * 2 * 2
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert Run("generate", "grouped(2)", 1, True).name == "generate-grouped2-distilled-1"
    fewer = dataclasses.replace(FULL, seeds=(0,), schemes=("all",))
    assert fewer.digest("classify") == FULL.digest("classify")


def _fields(value: object) -> Iterator[tuple[tuple[str, ...], object]]:
    if not dataclasses.is_dataclass(value):
        yield (), value
        return
    for field in dataclasses.fields(value):
        for path, leaf in _fields(getattr(value, field.name)):
            yield (field.name, *path), leaf


def _changed(value: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return (value, "changed")
    inner = _changed(getattr(value, path[0]), path[1:])
    return dataclasses.replace(value, **{path[0]: inner})


def test_each_setting_is_in_the_digest_of_the_tasks_whose_results_it_decides() -> None:
    lists = {"schemes", "seeds", "tasks", "distilled", "timed"}
    paths = [path for path, _ in _fields(FULL)]
    assert ("classify", "teacher", "schedule", "learning_rate") in paths
    for path in paths:
        study = _changed(FULL, path)
        touched = {task for task in FULL.tasks if study.digest(task) != FULL.digest(task)}
        own = {path[0]} & set(FULL.tasks)
        assert touched == (set() if path[0] in lists else own or set(FULL.tasks)), path


def test_as_many_groups_as_layers_share_nothing() -> None:
    none, grouped = (
        SharedEncoder(FULL.encoder("classify", scheme, 100))
        for scheme in ("none", f"grouped({FULL.layers})")
    )
    assert (none.attention_order, none.ffn_order) == (grouped.attention_order, grouped.ffn_order)
    assert count_parameters(none) == count_parameters(grouped)


def _causal() -> CausalEncoder:
    torch.manual_seed(0)
    config = SMOKE.encoder("generate", "all", 50)
    return CausalEncoder(dataclasses.replace(config, sharing=SharingScheme("all"))).eval()


@torch.no_grad()
def test_a_generator_computes_where_its_weights_are_and_in_their_type() -> None:
    ids = torch.randint(0, 50, (2, 12))
    expected = _causal()(ids)
    for dtype, atol in ((torch.float64, 1e-6), (torch.bfloat16, 0.01)):
        logits = _causal().to(dtype)(ids)
        assert logits.dtype == dtype
        torch.testing.assert_close(logits.float(), expected, atol=atol, rtol=0)
    assert _causal().to("meta")(ids.to("meta")).device.type == "meta"


@torch.no_grad()
def test_what_follows_a_token_does_not_change_its_logits() -> None:
    model = _causal()
    ids = torch.randint(0, 50, (2, 12))
    changed = torch.cat([ids[:, :8], (ids[:, 8:] + 1) % 50], dim=1)
    before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :8], after[:, :8], atol=1e-6, rtol=0)
    assert not torch.allclose(before[:, 8:], after[:, 8:])


def test_pruning_takes_the_smallest_weights_of_all_blocks_and_nothing_else() -> None:
    model = SharedEncoder(SMOKE.encoder("classify", "none", 50))
    with torch.no_grad():
        model.ffn_blocks[1].up.weight.mul_(100)
    result = pruned(model, 0.25)
    blocks = [p for n, p in result.named_parameters() if "blocks" in n and p.ndim == 2]
    zeros = sum(int((p == 0).sum()) for p in blocks)
    assert zeros == pytest.approx(0.25 * sum(p.numel() for p in blocks), abs=1)
    # So large that none of them is among the smallest quarter of all.
    assert int((result.ffn_blocks[1].up.weight == 0).sum()) < 20
    others = [n for n, p in model.named_parameters() if "blocks" not in n or p.ndim == 1]
    before, after = dict(model.named_parameters()), dict(result.named_parameters())
    assert list(before) == sorted(after, key=list(before).index)
    assert all(torch.equal(before[name], after[name]) for name in others)
    assert not any((p == 0).any() for n, p in before.items() if "blocks" in n and p.ndim == 2)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before.values(), pruned(model, 0).parameters(), strict=True)
    )


def test_passages_are_texts_end_to_end_and_drop_a_rest() -> None:
    assert pack([[5, 6, 3], [7, 3], [8, 9, 3]], 3).tolist() == [[5, 6, 3], [7, 3, 8]]


@pytest.mark.parametrize("task", ["classify", "generate"])
def test_each_task_begins_with_its_own_weights(
    task: TaskName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DrawnError(Exception):
        pass

    def draw(study: Study, drawn: TaskName, model: SharedEncoder) -> SharedEncoder:
        raise DrawnError(drawn)

    monkeypatch.setattr(Study, "draw", draw)
    rated = [Rated(word, rating) for word, rating in RATINGS.items()]
    write_texts(tmp_path, Corpus(tuple(rated), (), (), {}), [], [s.text for s in _sentences(99, 4)])
    save_tokenizer(train_tokenizer(RATINGS, vocab_size=40, max_length=20), tmp_path)
    fewer = dataclasses.replace(SMOKE.generate, passages=(32, 4))
    study = dataclasses.replace(SMOKE, generate=fewer, distilled=(False,))
    places = Places(tmp_path, tmp_path)
    performing.TASKS[task].prepare(study, places)  # without a teacher
    with pytest.raises(DrawnError, match=task):
        performing.TASKS[task].learn(study, Run(task, "all", 0, False), places)


def test_both_ends_are_trained_from_the_other_start_and_nothing_else_differs() -> None:
    starts: Any = {
        "classify": dataclasses.replace(OTHER_START.classify, start="by inputs"),
        "generate": dataclasses.replace(OTHER_START.generate, start="albert"),
    }
    lists: Any = {"schemes": FULL.schemes, "distilled": FULL.distilled, "timed": True}
    assert dataclasses.replace(OTHER_START, **starts, **lists) == FULL
    assert {(r.scheme, r.distilled) for r in OTHER_START.runs()} == {
        ("none", False),
        ("all", False),
    }
    for task in FULL.tasks:
        assert OTHER_START.digest(task) != FULL.digest(task)
    config = FULL.encoder("classify", "all", 3000)
    layers = [
        study.draw(task, SharedEncoder(config)).ffn_blocks[0].up.weight.std().item()
        for study in (FULL, OTHER_START)
        for task in FULL.tasks
    ]
    wide = FULL.hidden_size**-0.5
    assert layers == pytest.approx([wide, 0.02, 0.02, wide], rel=0.05)
