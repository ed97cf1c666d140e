"""The compiled P4 program that the package carries, and whether its sources are still the same."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError

FOLDER: Final = Path(__file__).parent
"""Folder in which P4 sources and compiled files lie side by side."""
MAIN_SOURCE: Final = "mlt.p4"
"""Name of the main P4 source, which includes all the others."""
DEVICE_CONFIG_FILE: Final = "mlt.json"
P4INFO_FILE: Final = "mlt.p4info.txtpb"
QUEUES_PER_PORT: Final = 8
"""Queues of a port (BMv2's `--priority-queues`); a queue's index in arrays is port x 8 + queue."""
PORTS: Final = 511
"""How many port numbers there are, 0 to 510; BMv2 drops what is sent to 511."""
CPU_PORT: Final = 255
"""Port number of the controller (`--cpu-port`)."""

BUILD_KEY: Final = "mltswitch"
"""Key under `__meta__` of the JSON for our build information; BMv2 reads only `version` there."""
_COOKIE_BYTES: Final = 8
_REFUSAL: Final = re.compile(r"const bit<7> REFUSED_(\w+) = (\d+);")


@dataclass(frozen=True, slots=True)
class Program:
    """One compiled P4 program, in the form that a switch takes."""

    p4info_text: str
    """P4Info in protobuf's text format: what a controller may set and read."""
    device_config: bytes
    """The compiled program as BMv2's JSON."""
    source_sha256: str
    """SHA-256, in hexadecimal, of the P4 sources from which it was compiled."""

    @property
    def cookie(self) -> int:
        """The number by which a switch remembers the program: 64 bits of the hash (P4Runtime,
        ForwardingPipelineConfig.Cookie)."""
        return int.from_bytes(bytes.fromhex(self.source_sha256)[:_COOKIE_BYTES], "big")


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One table of a compiled program."""

    name: str
    key: tuple[str, ...]
    """Fields of the table's key, each as `field (kind of match)`."""
    actions: tuple[str, ...]
    size: int
    """The most entries that the table can hold."""


@dataclass(frozen=True, slots=True)
class ProgramSummary:
    """The tables, counters and other parts of a compiled program."""

    source_sha256: str
    compiler: str
    """Name and version of the p4c that built it."""
    tables: tuple[TableSummary, ...]
    counters: Mapping[str, int]
    """Name of a counter → its number of cells."""
    meters: Mapping[str, int]
    registers: Mapping[str, int]


def source_files(folder: Path = FOLDER) -> tuple[Path, ...]:
    """Every P4 file of the folder, by name."""
    return tuple(sorted(folder.glob("*.p4")))


def source_sha256(folder: Path = FOLDER) -> str:
    """SHA-256 over names and contents of the P4 files of the folder, in hexadecimal."""
    digest = hashlib.sha256()
    for path in source_files(folder):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@cache
def shipped_program() -> Program:
    """The compiled program of the package; raises MachineError where it is missing or damaged."""
    return read_program(FOLDER)


def read_program(folder: Path) -> Program:
    """The program that `mltswitch p4 build` wrote into a folder; raises MachineError where none is whole."""
    path = folder / DEVICE_CONFIG_FILE
    text = _read(path)
    return Program(_read(folder / P4INFO_FILE), text.encode(), _source_hash(text, path))


def summary(program: Program) -> ProgramSummary:
    """The parts of a compiled program, read from its JSON, by the short names that operators write."""
    data = json.loads(program.device_config)
    tables = [table for pipeline in data["pipelines"] for table in pipeline["tables"]]
    return ProgramSummary(
        source_sha256=program.source_sha256,
        compiler=data["__meta__"][BUILD_KEY]["compiler"],
        tables=tuple(
            TableSummary(
                name=_short(table["name"]),
                key=tuple(f"{field['name']} ({field['match_type']})" for field in table["key"]),
                actions=tuple(dict.fromkeys(map(_short, table["actions"]))),
                size=table["max_size"],
            )
            for table in tables
            if not _short(table["name"]).startswith("tbl_")  # p4c wraps bare statements into such tables
        ),
        **{
            kind: {_short(array["name"]): array["size"] for array in data[f"{kind[:-1]}_arrays"]}
            for kind in ("counters", "meters", "registers")
        },
    )


def refusal_reasons(folder: Path = FOLDER) -> Mapping[int, str]:
    """Index of the counter `refused` → the reason's name in refusals.p4, in lower case: `no_route`."""
    text = (folder / "refusals.p4").read_text(encoding="utf-8")
    return {int(index): name.lower() for name, index in _REFUSAL.findall(text)}


def _short(name: str) -> str:
    """A name without the controls around it."""
    return name.rpartition(".")[2]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "is no text"
        raise MachineError(
            f"the compiled P4 program cannot be read: {problem}",
            where=str(path),
            hint="`mltswitch p4 build` makes it",
        ) from None


def _source_hash(device_config: str, path: Path) -> str:
    """The hash of the sources that a file was compiled from."""
    try:
        found = json.loads(device_config)["__meta__"][BUILD_KEY]["source_sha256"]
        bytes.fromhex(found)
        return str(found)
    except (ValueError, KeyError, TypeError):
        raise MachineError(
            "is no P4 program that mltswitch compiled", where=str(path), hint="`mltswitch p4 build` makes it"
        ) from None
