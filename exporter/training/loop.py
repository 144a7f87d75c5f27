"""The training loop: any objective over batches of token ids, on one CPU or several GPUs.

What happens at a step follows from the schedule, its seed and the step's number alone:
order and randomness are drawn anew from them each time. So a run that was interrupted
goes on from its last snapshot to the very weights it would have reached.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

import torch
from accelerate import Accelerator, PartialState  # type: ignore[import-untyped]
from accelerate.utils import parse_flag_from_env  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from exporter.errors import ExportError
from exporter.training.batches import pad, shuffled_batches
from exporter.training.digests import digest_examples
from exporter.training.snapshots import Snapshot, read_snapshot, write_snapshot

__all__ = [
    "DivergedError",
    "Examples",
    "Objective",
    "Run",
    "Schedule",
    "Step",
    "cpu_threads",
    "device",
    "is_main_process",
    "train",
    "wait_for_all",
]

Precision = Literal["fp32", "bf16"]


class DivergedError(ExportError):
    """A training's gradient is no finite number any more."""


@dataclass(frozen=True)
class Schedule:
    """How an objective is trained; with the data it decides the result, bit for bit.

    That holds on one machine with the same libraries; another one sums in another order.

    Args:
        epochs: passes over the examples.
        batch_size: examples per step, on all processes together.
        learning_rate: peak of the warm-up and cosine schedule.
        warmup: share of the steps that warm up.
        weight_decay: of matrices; vectors are not decayed.
        average_decay: of the exponential moving average of the weights that is kept;
            0 keeps the last weights.
        seed: of order, dropout and whatever else the objective draws.
        threads: CPU threads.
        precision: of matrix products; weights and optimizer are always fp32. ``bf16`` is
            several times faster on CPUs with AMX and on GPUs, and slower on older CPUs.
    """

    epochs: int = 4
    batch_size: int = 32
    learning_rate: float = 1e-3
    warmup: float = 0.06
    weight_decay: float = 0.05
    average_decay: float = 0.995
    seed: int = 0
    threads: int = 2
    precision: Precision = "fp32"


@dataclass(frozen=True)
class Examples:
    """Token ids, and per example what the objective wants.

    ``targets`` are tensors ``[N, …]``; of a batch the objective gets their rows.
    """

    sequences: Sequence[Sequence[int]]
    targets: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.sequences)


class Objective(nn.Module):
    """A model and its loss."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Mapping[str, Tensor], done: float
    ) -> Tensor:
        """Return the mean loss of a batch, a scalar.

        Args:
            input_ids: int64 ``[B, S]``.
            attention_mask: int64 ``[B, S]``, 1 = token.
            targets: rows of :attr:`Examples.targets`, each ``[B, …]``.
            done: share (0 to 1) of the steps that is done.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Step:
    """Where a run stands: ``step`` of ``steps`` are done; ``epoch`` counts from 1.

    ``average`` is what would be kept now, in eval mode; it changes with the next step.
    ``loss`` is the last step's.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    average: nn.Module


_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Run(Generic[_Result]):
    """What a run gave so far, and how far that is."""

    result: _Result
    step: int
    steps: int

    @property
    def finished(self) -> bool:
        """Whether all steps are done, and nothing stopped it before."""
        return self.step == self.steps


_Objective = TypeVar("_Objective", bound=Objective)


def train(
    objective: _Objective,
    examples: Examples,
    schedule: Schedule,
    *,
    snapshot: Path | None = None,
    snapshot_interval_s: float = 120,
    identity: Mapping[str, object] | None = None,
    report: Callable[[Step], None] | None = None,
    time_budget_s: float = math.inf,
    stop: Callable[[], bool] = lambda: False,
) -> Run[_Objective]:
    """Train ``objective``, which is left with the last weights.

    Args:
        objective: what to minimize; its initial weights are the caller's.
        examples: the training set.
        schedule: how.
        snapshot: file that holds the run, so that a later call goes on from it.
        snapshot_interval_s: seconds between two snapshots.
        identity: what decides the result besides schedule and examples, for telling runs
            apart: above all what the initial weights are made of.
        report: called after each step, on the main process only.
        time_budget_s: seconds after which the run stops, between two steps.
        stop: asked after each step whether to stop there, as when the time is used up.

    Returns:
        A copy of the objective with the averaged weights, in eval mode, on the CPU.

    Raises:
        CheckpointError: ``snapshot`` holds another run, or is damaged.
        ArtifactError: ``snapshot`` cannot be written.
        DivergedError: the gradient is no finite number; what is kept of the run is
            ``snapshot``, from before.
    """
    start = time.monotonic()
    per_epoch = math.ceil(len(examples) / schedule.batch_size)
    steps = schedule.epochs * per_epoch
    accelerator = Accelerator()
    average = copy.deepcopy(objective).eval().to(accelerator.device)
    groups = _parameter_groups(objective, schedule)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)
    prepared, optimizer = accelerator.prepare(objective.train(), optimizer)
    first = 0
    processes = accelerator.num_processes  # their gradients are summed in another order
    named = {"schedule": schedule, **({"processes": processes} if processes > 1 else {})}
    run = None
    if snapshot is not None:
        data = {"examples": digest_examples(examples.sequences, examples.targets)}
        run = Snapshot(snapshot, {**named, **(identity or {}), **data})
    parts = {"model": objective, "average": average, "optimizer": optimizer}
    if run is not None:
        first = read_snapshot(run, parts)
    saved, step = start, first

    # The one GPU of this process: to save the state of all of them, torch warns, is slow.
    gpus = [accelerator.device] if accelerator.device.type == "cuda" else []
    with cpu_threads(schedule.threads), torch.random.fork_rng(gpus):
        for step, indices in itertools.islice(_batches(examples, schedule), first, None):
            torch.manual_seed(_mix(schedule.seed, step, accelerator.process_index))
            _set_learning_rate(optimizer, schedule, step / steps)
            # Each process takes its part of the batch; their gradients are averaged.
            own = indices[accelerator.process_index :: accelerator.num_processes] or indices[:1]
            batch = _batch(examples, own, accelerator.device)
            with _arithmetic(accelerator.device.type, schedule.precision):
                loss = prepared(*batch, step / steps)
            optimizer.zero_grad()
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
            if not math.isfinite(norm):
                raise DivergedError(
                    f"step {step + 1} of {steps}: the gradient is no finite number any more; "
                    f"take a learning rate below {schedule.learning_rate:g}"
                )
            optimizer.step()
            step += 1
            _update_average(average, objective, schedule.average_decay, step)
            if report is not None and accelerator.is_main_process:
                epoch = (step - 1) // per_epoch + 1
                report(Step(step, steps, epoch, loss.item(), average))
            now = time.monotonic()
            over = step == steps or _any(accelerator, stop() or now - start > time_budget_s)
            due = over or now - saved > snapshot_interval_s
            if run is not None and due and accelerator.is_main_process:
                write_snapshot(run, step, parts)
                saved = now
            if over:
                break
    return Run(average.cpu(), step, steps)


def _batch(
    examples: Examples, indices: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    ids, mask = pad([examples.sequences[index] for index in indices])
    targets = {name: values[indices].to(device) for name, values in examples.targets.items()}
    return ids.to(device), mask.to(device), targets


def _any(accelerator: Accelerator, flag: bool) -> bool:
    """Tell whether any process says so: all must stop at the same step."""
    if accelerator.num_processes == 1:
        return flag
    votes = torch.tensor(float(flag), device=accelerator.device)
    return bool(accelerator.reduce(votes).item())


def _batches(examples: Examples, schedule: Schedule) -> Iterator[tuple[int, list[int]]]:
    """Yield each step's number and the indices of its examples."""
    lengths = [len(sequence) for sequence in examples.sequences]
    step = 0
    for epoch in range(schedule.epochs):
        generator = torch.Generator().manual_seed(_mix(schedule.seed, epoch, -1))
        for indices in shuffled_batches(lengths, schedule.batch_size, generator):
            yield step, indices
            step += 1


def _mix(*numbers: int) -> int:
    """Return a seed of its own for each combination of numbers, close ones included."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@contextmanager
def _arithmetic(device: str, precision: Precision) -> Iterator[None]:
    # On CPUs the fused attention's gradient takes several times as long as the plain one's
    # for batches of short texts.
    fused = sdpa_kernel(SDPBackend.MATH) if device == "cpu" else nullcontext()
    with fused, torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        yield


def device() -> torch.device:
    """Return what this process computes on: its GPU, or the CPU where there is none."""
    return torch.device(_processes().device)


def is_main_process() -> bool:
    """Tell whether this is the process that writes and reports, of however many."""
    return bool(_processes().is_main_process)


def wait_for_all() -> None:
    """Go on when every process, of however many, is as far as this one."""
    _processes().wait_for_everyone()


def _processes() -> PartialState:
    # What this is asked first stands for good, for the Accelerator too, and it would take
    # neither 'accelerate launch --cpu' nor several processes on CPUs from the environment.
    return PartialState(cpu=bool(parse_flag_from_env("ACCELERATE_USE_CPU")))


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Compute with so many CPU threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _parameter_groups(module: nn.Module, schedule: Schedule) -> list[dict[str, object]]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    return [
        {
            "params": [p for p in parameters if p.ndim > 1],
            "weight_decay": schedule.weight_decay,
            "lr": schedule.learning_rate,
        },
        {
            "params": [p for p in parameters if p.ndim <= 1],
            "weight_decay": 0.0,
            "lr": schedule.learning_rate,
        },
    ]


def _set_learning_rate(optimizer: torch.optim.Optimizer, schedule: Schedule, done: float) -> None:
    rise = (done + 1e-4) / schedule.warmup if schedule.warmup else 1.0
    factor = min(rise, 0.5 * (1 + math.cos(math.pi * done)))
    for group in optimizer.param_groups:
        group["lr"] = schedule.learning_rate * factor


@torch.no_grad()
def _update_average(average: nn.Module, module: nn.Module, decay: float, step: int) -> None:
    # Early on, a long memory would keep the start.
    decay = min(decay, (1 + step) / (10 + step)) if decay else 0.0
    pairs = zip(average.parameters(), module.parameters(), strict=True)
    kept, current = zip(*((a, p) for a, p in pairs if p.requires_grad), strict=True)
    torch._foreach_lerp_(kept, [parameter.detach() for parameter in current], 1 - decay)
