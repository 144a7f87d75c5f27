"""Records made by hand, and a reader of HTML."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from exporter.records import (
    Case,
    Check,
    Device,
    Evaluation,
    Measurement,
    Memory,
    ModelFile,
    Times,
)

LAPTOP = Device(
    label="Laptop",
    cpu="Core i5-8250U",
    system="Linux 6.1 x86_64",
    engine="CPython 3.12",
    runtime="onnxruntime",
    runtime_version="1.27.0",
    cpu_flags=("avx2",),
    cores=8,
    usable_cores=4,
    memory_bytes=16 << 30,
)
PHONE = Device(
    label="Phone",
    cpu="unknown",
    system="Android 15",
    engine="Chrome 140",
    runtime="onnxruntime-web",
    runtime_version="1.30.0",
    cross_origin_isolated=True,
    timer_resolution_ms=0.1,
)
SIZES = {"baseline": 9_000_000, "fp32": 3_000_000, "int8": 900_000, "int4": 500_000}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def model(variant: str, content: str = "") -> ModelFile:
    size = SIZES.get(variant, 1_000_000)
    return ModelFile(
        path=f"onnx/{variant}.onnx",
        sha256=digest(content or variant),
        file_bytes=size,
        gzip_bytes=size // 10 * 9,
        brotli_bytes=size // 10 * 8,
    )


def measurement(
    variant: str = "fp32",
    samples: Sequence[float] = (4.0, 5.0, 6.0),
    *,
    device: Device = LAPTOP,
    run: str = "run-1",
    day: str = "2026-03-01",
    artifact: str = "demo",
    threads: int = 1,
    sequence: int = 128,
    content: str = "",
    **fields: Any,
) -> Measurement:
    browser = device.runtime == "onnxruntime-web"
    case = Case(
        artifact=artifact,
        variant=variant,
        runtime="browser" if browser else "cpu",
        threads=threads,
        batch=1,
        sequence=sequence,
        browser="chrome" if browser else None,
    )
    values: dict[str, Any] = {
        "times": Times(runtime_start=50.0, session_create=20.0, cold_first=9.0, warm_first=7.0),
        "memory": Memory(wasm_heap=30_000_000) if browser else Memory(added_rss=8_000_000),
        "check": Check(status="passed", relative_error=0.001, tolerance=0.01),
        "command": "albert-export bench demo --out results.jsonl",
        **fields,
    }
    if values.get("status", "measured") != "measured":
        samples = ()
    return Measurement(
        tool="0.1.0",
        created=f"{day}T10:00:00Z",
        run=run,
        case=case,
        model=model(variant, content),
        device=device,
        samples_ms=tuple(samples),
        **values,
    )


def trio(
    *, int8: float = 0.5, fp32: float = 1.0, base: float = 10.0, **options: Any
) -> list[Measurement]:
    """A run of three variants, 40 samples each, that drift together."""
    drift = [base * (1 + 0.01 * (i % 7)) for i in range(40)]
    return [
        measurement(variant, [sample * factor for sample in drift], **options)
        for variant, factor in (("baseline", 1.0), ("fp32", fp32), ("int8", int8))
    ]


def evaluation(variant: str, correct: int, **fields: Any) -> Evaluation:
    share = correct / 1000
    values: dict[str, Any] = {"data": "test.jsonl", "data_sha256": digest("data"), **fields}
    return Evaluation(
        tool="0.1.0",
        created="2026-03-01T11:00:00Z",
        artifact="demo",
        variant=variant,
        model=model(variant),
        rows=1000,
        correct=correct,
        majority=0.5,
        interval_95=(share - 0.02, share + 0.02),
        **values,
    )


@dataclass
class Node:
    """An element, its attributes, and what it holds."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str | None = None, **attributes: str) -> list[Node]:
        """Find the elements below; ``data_key`` stands for ``data-key``."""
        wanted = {name.replace("_", "-").rstrip("-"): v for name, v in attributes.items()}
        return [
            node
            for node in self.walk()
            if tag in (None, node.tag) and wanted.items() <= node.attributes.items()
        ]

    def walk(self) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node):
                yield child
                yield from child.walk()


class _Reader(HTMLParser):
    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.root = Node("root")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in self.VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_html(text: str) -> Node:
    """Read HTML whose elements are all closed in order."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root
