"""Making the files of each chain; what fails becomes a reason."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import ToolError, run_logged
from benchmarks.peers.chains import Chain, Step

__all__ = ["Product", "make_products"]

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Product:
    """One file of one chain, or why there is none.

    Args:
        chain, precision: whose.
        path: the file; ``None``: it could not be made.
        command: what made it.
        told: what the tool's script said of its weight operations, ``reached`` and ``total``.
        error: why there is none.
    """

    chain: Chain
    precision: str
    path: Path | None
    command: str = ""
    told: dict[str, int] | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        """How others refer to it."""
        return f"{self.chain.name} {self.precision}"

    @property
    def files(self) -> list[Path]:
        """The file and what belongs to it."""
        if self.path is None:
            return []
        if self.path.suffix == ".xml":
            return [self.path, self.path.with_suffix(".bin")]
        return [self.path, *sorted(self.path.parent.glob(f"{self.path.name}[._]data*"))]


def make_products(chains: Iterable[Chain], work: Path) -> list[Product]:
    """Make what is not there yet, in order; a step's source is made before it.

    A tool that fails ends its file, and those made from it.
    """
    made: dict[str, Product] = {}
    for chain in chains:
        for precision, step in chain.files.items():
            product = _make(chain, precision, step, made, work)
            made[product.name] = product
            if product.error:
                print(f"{product.name}: {product.error}", file=sys.stderr)
    return list(made.values())


def _make(
    chain: Chain, precision: str, step: Step | str, made: dict[str, Product], work: Path
) -> Product:
    if isinstance(step, str):
        known = made.get(step)
        if known is None:
            return Product(chain, precision, work / step)
        return Product(chain, precision, known.path, known.command, known.told, known.error)
    source = made[step.source].path if step.source in made else work / step.source
    command = _readable(step)
    if source is None:
        return Product(chain, precision, None, command, error=f"there is no {step.source}")
    title = step.folder or f"{chain.name} {precision}"
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    folder = work / "files" / name
    if not folder.exists():
        print(f"{chain.name}, {precision} …", file=sys.stderr)
        try:
            _run(step, source, folder, work)
        except ToolError as error:
            reason = _reason(str(error))
            return Product(chain, precision, None, command, error=reason)
    return Product(chain, precision, folder / step.file, command, _told(folder))


def _run(step: Step, source: Path, folder: Path, work: Path) -> None:
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    log = work / "logs" / f"{folder.name}.log"
    log.parent.mkdir(exist_ok=True)
    folder.parent.mkdir(exist_ok=True)
    if step.environment is not None:
        unfinished.mkdir()  # our own command makes its folder itself
    names = {
        "source": str(source),
        "source_folder": str(source.parent),
        "folder": str(unfinished),
    }
    arguments = [part.format(**names) for part in step.arguments]
    if step.environment is None:
        run_logged([sys.executable, *arguments], log)
    else:
        step.environment.run(work, arguments, log)
    if not (unfinished / step.file).exists():
        raise ToolError(f"no {step.file} was written, and no error told")
    shutil.copyfile(log, unfinished / "made.log")
    unfinished.rename(folder)


def _told(folder: Path) -> dict[str, int] | None:
    """The last line that is JSON, if the tool's script wrote one."""
    for line in reversed((folder / "made.log").read_text(encoding="utf-8").splitlines()):
        if line.startswith('{"reached"'):
            told: dict[str, int] = json.loads(line)
            return told
    return None


def _reason(said: str) -> str:
    """The line that names the error, without colours and paths of this machine."""
    lines = [line.strip() for line in _ANSI.sub("", said).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Fail)\w*\b.*:", line)]
    line = (named or lines)[-1]
    return re.sub(r"(/[\w.+-]+){2,}/", "…/", line)[:300]


def _readable(step: Step) -> str:
    words = [Path(part).name if part.startswith("/") else part for part in step.arguments]
    return " ".join(["python", *words])
