"""Look into pickles without executing them. Needs neither torch nor the pickled classes."""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PickleContent", "read_pickle"]

_SAFE_MODULES = ("torch", "torch._utils", "torch.nn.parameter", "torch.storage", "collections")
_STRINGS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_TUPLES = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")
_DICTIONARIES = ("collections.OrderedDict", "collections.defaultdict")


@dataclass(frozen=True)
class PickleContent:
    """What a pickle would build.

    Args:
        top: the outermost object: ``dict``, ``list``, ``tuple``, ``tensor``, or the full
            name of its class.
        classes: full names of everything the pickle would import, in order.
    """

    top: str
    classes: tuple[str, ...]

    @property
    def foreign(self) -> tuple[str, ...]:
        """Classes that are neither tensors nor containers of them."""
        names = (n for n in self.classes if n.rpartition(".")[0] not in _SAFE_MODULES)
        return tuple(dict.fromkeys(names))


def read_pickle(path: Path) -> PickleContent:
    """Read what ``torch.save`` or ``pickle.dump`` wrote to ``path``, executing nothing.

    Raises:
        ValueError: no pickle, or a damaged one.
    """
    if not zipfile.is_zipfile(path):
        with path.open("rb") as stream:
            contents: list[PickleContent] = []
            # torch's old format is several pickles: a magic number, a version, the
            # machine, the object; storages follow. One that holds objects is the one.
            while len(contents) < 4:
                contents.append(_scan(pickletools.genops(stream)))
                if contents[-1].top not in ("number", "dict") or contents[-1].classes:
                    break
                if len(contents) == 1 and contents[0].top != "number":
                    break
        return contents[-1]
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(n for n in archive.namelist() if n.rpartition("/")[2] == "data.pkl")
            return _scan(pickletools.genops(archive.read(member)))
    except (StopIteration, zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        raise ValueError(f"no readable data.pkl in {path.name}") from error


def _scan(operations: Iterator[tuple[pickletools.OpcodeInfo, object, int | None]]) -> PickleContent:
    classes: list[str] = []
    strings: list[str] = []  # pushed so far: STACK_GLOBAL takes the last two
    memo: dict[int, str] = {}
    top = last = ""
    for code, argument, _ in operations:
        name = code.name
        if name in _STRINGS:
            strings.append(str(argument))
        elif name == "MEMOIZE":
            memo[len(memo)] = strings[-1] if strings else ""
        elif name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(argument, int):
            memo[argument] = strings[-1] if strings else ""
        elif name in ("GET", "BINGET", "LONG_BINGET") and isinstance(argument, int):
            strings.append(memo.get(argument, ""))
        elif name in ("GLOBAL", "INST"):
            classes.append(str(argument).replace(" ", "."))
        elif name == "STACK_GLOBAL":
            classes.append(".".join(strings[-2:]))
        if not top:
            top = _top_of(name, classes)
        if name not in ("STOP", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            last = name
    # A tuple is built after what it holds.
    return PickleContent("tuple" if last.endswith(_TUPLES) else top, tuple(classes))


def _top_of(opcode: str, classes: list[str]) -> str:
    if classes:
        if classes[0] in _DICTIONARIES:
            return "dict"
        return "tensor" if classes[0].startswith("torch._utils._rebuild") else classes[0]
    kinds = {"EMPTY_DICT": "dict", "DICT": "dict", "EMPTY_LIST": "list", "LIST": "list"}
    if opcode in ("LONG1", "LONG", "INT", "BININT", "BININT1", "BININT2"):
        return "number"
    return kinds.get(opcode, "")
