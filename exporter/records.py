"""The one schema of a measurement, shared by every runtime, page, server and report.

A results file holds one record per line, as JSON. Records are read strictly: a field that
is unknown, missing, of another type or out of range is an error that names it, since they
come from files and devices that this program does not control. Times are in milliseconds,
sizes in bytes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from exporter.errors import BenchmarkError

__all__ = [
    "SCHEMA_VERSION",
    "Case",
    "Check",
    "Device",
    "Evaluation",
    "Flag",
    "LayersUsed",
    "Measurement",
    "Memory",
    "ModelFile",
    "Record",
    "RecordError",
    "Runtime",
    "Status",
    "Texts",
    "Times",
    "json_schema",
    "parse_record",
    "to_json",
]

SCHEMA_VERSION = 2
"""Counts up where a field that exists changes its meaning or goes. One that is added is optional,
and its absence means what records without it mean; an older reader refuses it by its name."""

Runtime = Literal["cpu", "node", "browser"]
"""``cpu``: onnxruntime in Python. ``node``: onnxruntime-web's WebAssembly in Node.
``browser``: the same in a browser."""

Status = Literal["measured", "failed", "not run"]

Flag = Literal[
    "spread",
    "hidden tab",
    "coarse timer",
    "failed check",
    "unstable warm-up",
    "fewer threads",
    "interrupted",
    "likely out of memory",
    "too slow",
    "too few cores",
    "swapped",
]
"""What makes a figure doubtful. ``spread``: the middle half of the samples lies more than
25 % of the median apart; texts take unlike times, and never get it. ``too slow``: given up, since
it took longer than the limit of the measurement allows. ``fewer threads``: the runtime used fewer
than asked for. ``too few cores``: more threads were asked for than cores are usable. ``swapped``:
the machine read memory back from its swap space meanwhile."""

Text = Annotated[str, msgspec.Meta(max_length=200)]
LongText = Annotated[str, msgspec.Meta(max_length=2000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Moment = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


class RecordError(BenchmarkError):
    """A record that does not follow the schema."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Device(_Part, frozen=True):
    """Where a measurement was made.

    Args:
        label: what people call it; a person may change it.
        cpu: model name, as far as the platform tells.
        cpu_flags: instruction sets that matter here: ``avx2``, ``avx512f``, ``avx512_vnni``,
            ``avx_vnni``, ``amx_int8``, ``asimddp``, ``i8mm``, …; in a browser none are known.
        cores: logical cores; ``usable_cores`` those this process may run on.
        memory_bytes: physical memory; browsers tell it coarsely or not at all.
        system: operating system, its version and the architecture.
        engine: what runs the runtime: ``CPython 3.12``, ``Node 20.1``, ``Chromium 140``, …
        user_agent: a browser's own words.
        runtime: ``onnxruntime`` or ``onnxruntime-web``.
        runtime_version: its version.
        cross_origin_isolated: whether threads are possible in a browser.
        timer_resolution_ms: smallest step of the clock.
    """

    label: Text
    cpu: Text
    system: Text
    engine: Text
    runtime: Text
    runtime_version: Text
    cpu_flags: Annotated[tuple[Text, ...], msgspec.Meta(max_length=64)] = ()
    cores: Positive | None = None
    usable_cores: Positive | None = None
    memory_bytes: Count | None = None
    user_agent: LongText | None = None
    cross_origin_isolated: bool | None = None
    timer_resolution_ms: Milliseconds | None = None


class Texts(_Part, frozen=True):
    """Real texts that a model was run on, one at a time.

    Args:
        name: of the file.
        sha256: of its content.
        rows: how many of its texts were run. Which ones follows from the file and from this
            number.
        column: that held the text.
    """

    name: Text
    sha256: Digest
    rows: Positive
    column: Text = "text"


class Case(_Part, frozen=True):
    """What was measured: two measurements with equal cases on one device are comparable.

    Args:
        artifact: its name: the folder's.
        variant: name of the file within the artifact, such as ``fp32`` or ``baseline``.
        runtime: see :data:`Runtime`.
        threads: compute threads asked for.
        batch: rows per run.
        sequence: tokens per row; of texts their mean, rounded.
        browser: ``chromium``, ``firefox``, …; ``None`` outside of browsers.
        texts: what it was run on; ``None``: random ids.
    """

    artifact: Text
    variant: Text
    runtime: Runtime
    threads: Positive
    batch: Positive
    sequence: Positive
    browser: Text | None = None
    texts: Texts | None = None


class ModelFile(_Part, frozen=True):
    """The file that was measured.

    Args:
        path: within the artifact.
        sha256: of its content; with external data, of the hashes of all its files.
        file_bytes: on disk, external data included.
        gzip_bytes, brotli_bytes: on the wire, at the levels the server uses.
    """

    path: Text
    sha256: Digest
    file_bytes: Count
    gzip_bytes: Count | None = None
    brotli_bytes: Count | None = None


class Times(_Part, frozen=True):
    """Everything that happens once. ``None``: does not exist there, or is not known.

    Where several processes measured, each is the median over them.

    Args:
        process_start: until the process or worker answers.
        runtime_start: importing the runtime, and starting WebAssembly.
        session_create: reading the file that is already there, and creating the session.
        cold_first: the first run of the first session.
        warm_first: the first run of a second session in the same process, where the engine
            has compiled its code already.
    """

    process_start: Milliseconds | None = None
    runtime_start: Milliseconds | None = None
    session_create: Milliseconds | None = None
    cold_first: Milliseconds | None = None
    warm_first: Milliseconds | None = None


class Memory(_Part, frozen=True):
    """Memory, in bytes.

    Args:
        added_rss: growth of the process's resident memory by loading and the first run.
        peak_rss: largest resident memory of the process.
        wasm_heap: size of the WebAssembly heap, which never shrinks.
    """

    added_rss: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] | None = None
    peak_rss: Count | None = None
    wasm_heap: Count | None = None


class Check(_Part, frozen=True):
    """Outputs on the device against the artifact's reference vectors.

    Args:
        status: ``passed``, ``failed`` or ``not run``.
        relative_error: root mean square of the difference in proportion to the
            reference's, of whole numbers the share that differs; the largest over outputs.
        max_abs_error: largest absolute difference of real numbers.
        tolerance: limit of ``relative_error``.
    """

    status: Literal["passed", "failed", "not run"] = "not run"
    relative_error: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max_abs_error: Annotated[float, msgspec.Meta(ge=0)] | None = None
    tolerance: Annotated[float, msgspec.Meta(ge=0)] | None = None


class LayersUsed(_Part, frozen=True):
    """How many passes through its layer a model made that leaves early.

    Args:
        setting: the input that says when: ``exit_threshold`` or ``patience``.
        value: of it.
        mean, p90: passes, over all rows, or all steady runs.
        of: passes that the model makes at most.
    """

    setting: Text
    value: float
    mean: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    p90: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    of: Positive


class Measurement(_Part, frozen=True, tag_field="kind", tag="measurement"):
    """One case on one device.

    Args:
        schema: version of this schema.
        tool: version of albert-export.
        created: when, UTC: ``2026-01-31T12:00:00Z``.
        run: names the interleaved run this case took part in; sample *i* of one case was
            taken next to sample *i* of the others of the same run, and of no other.
        case, model, device: what and where.
        status: ``failed`` and ``not run`` come with ``error``.
        error: one line, for people.
        threads_used: compute threads the runtime has; ``None`` where it does not tell.
        times, memory, check: see there.
        samples_ms: every steady run, in order.
        session_runs: how many of the samples each fresh process or page gave, in order; two
            processes of one file differ by more than the runs of one do. Empty: one gave all.
        layers: passes used, where the model left early.
        flags: what makes the figures doubtful.
        command: the command line that reproduces it.
    """

    tool: Text
    created: Moment
    run: Text
    case: Case
    model: ModelFile
    device: Device
    status: Status = "measured"
    error: LongText | None = None
    threads_used: Positive | None = None
    times: Times = msgspec.field(default_factory=Times)
    samples_ms: Annotated[tuple[Milliseconds, ...], msgspec.Meta(max_length=100_000)] = ()
    session_runs: Annotated[tuple[Positive, ...], msgspec.Meta(max_length=1000)] = ()
    memory: Memory = msgspec.field(default_factory=Memory)
    check: Check = msgspec.field(default_factory=Check)
    layers: LayersUsed | None = None
    flags: Annotated[tuple[Flag, ...], msgspec.Meta(max_length=16)] = ()
    command: LongText | None = None
    schema: Literal[2] = 2

    def __post_init__(self) -> None:
        if self.status == "measured" and not self.samples_ms:
            raise ValueError("a measurement that succeeded needs samples_ms")
        if self.status != "measured" and not self.error:
            raise ValueError(f"a measurement that is {self.status!r} needs an error")
        if self.session_runs and sum(self.session_runs) != len(self.samples_ms):
            raise ValueError("session_runs do not add up to the number of samples_ms")

    @property
    def mean_ms(self) -> float:
        """Mean of the steady runs; NaN without any."""
        return float(np.mean(self.samples_ms)) if self.samples_ms else float("nan")

    @property
    def median_ms(self) -> float:
        """Median of the steady runs; NaN without any."""
        return float(np.median(self.samples_ms)) if self.samples_ms else float("nan")

    @property
    def p90_ms(self) -> float:
        """90th percentile of the steady runs."""
        return float(np.percentile(self.samples_ms, 90)) if self.samples_ms else float("nan")

    @property
    def min_ms(self) -> float:
        """Shortest of the steady runs."""
        return min(self.samples_ms, default=float("nan"))

    @property
    def mad_ms(self) -> float:
        """Median absolute deviation of the steady runs from their median."""
        samples = np.asarray(self.samples_ms)
        return float(np.median(np.abs(samples - self.median_ms))) if samples.size else float("nan")


class Evaluation(_Part, frozen=True, tag_field="kind", tag="evaluation"):
    """How often one file of an artifact is right on labelled data.

    Args:
        artifact, variant, model: which file.
        data: name of the data file.
        data_sha256: of its content.
        rows: how many examples.
        correct: how many the file labels right.
        majority: share of the most frequent label.
        interval_95: 95 % interval of the accuracy (Wilson's score interval).
        batch: rows per run, which int8 results depend on a little.
        agreement: share of rows where the label is the one that ``reference`` gives.
        only_reference, only_this: rows that only the one of the two labels right.
        reference: variant that these compare with.
        layers: passes used, where the model left early.
    """

    tool: Text
    created: Moment
    artifact: Text
    variant: Text
    model: ModelFile
    data: Text
    data_sha256: Digest
    rows: Positive
    correct: Count
    majority: Share
    interval_95: tuple[Share, Share]
    batch: Positive = 1
    agreement: Share | None = None
    only_reference: Count | None = None
    only_this: Count | None = None
    reference: Text | None = None
    layers: LayersUsed | None = None
    command: LongText | None = None
    schema: Literal[2] = 2

    def __post_init__(self) -> None:
        if self.correct > self.rows:
            raise ValueError("more correct labels than rows")

    @property
    def accuracy(self) -> float:
        """Share labelled right."""
        return self.correct / self.rows


Record = Measurement | Evaluation

_DECODER = msgspec.json.Decoder(Record)
_VERSION = re.compile(rb'"schema"\s*:\s*(\d+)')


def parse_record(line: str | bytes) -> Record:
    """Read one record.

    Raises:
        RecordError: no JSON, another schema version, or a field that does not follow the
            schema; the text names it.
    """
    raw = line.encode() if isinstance(line, str) else line
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        version = _VERSION.search(raw)
        if version is not None and int(version[1]) != SCHEMA_VERSION:
            raise RecordError(
                f"record has schema {int(version[1])}; this version reads {SCHEMA_VERSION}"
            ) from error
        raise RecordError(f"no valid record: {error}") from error


def to_json(record: Record) -> str:
    """Return one line of JSON, which :func:`parse_record` reads."""
    return msgspec.json.encode(record).decode()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a record, for other tools."""
    return msgspec.json.schema(Record)
