"""Compiles P4 sources to the files that the package carries, with p4c; the same bytes on every machine."""

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.p4.program import (
    BUILD_KEY,
    DEVICE_CONFIG_FILE,
    FOLDER,
    MAIN_SOURCE,
    P4INFO_FILE,
    source_sha256,
)

COMPILE_SECONDS: Final = 300.0
"""Time limit in seconds for the compiler, so that one that hangs is ended."""
_COMPILERS: Final = (("p4c-bm2-ss", ()), ("p4c", ("--target", "bmv2", "--arch", "v1model")))
"""The back end for BMv2 alone, or the driver that calls it; with the options that only it takes."""
_VERSION: Final = re.compile(r"^(?:p4c )?Version:?\s+(\S+)|^p4c\s+(\d\S*)", re.MULTILINE | re.IGNORECASE)
_COMPLAINT: Final = re.compile(
    r"^(?P<place>[^:()\s]+)\((?P<line>\d+)\):\s*(?P<text>.*error.*)$", re.MULTILINE
)
_MAXIMUM_COMPLAINT_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Compiler:
    """A p4c compiler on this machine."""

    path: Path
    version: str
    options: tuple[str, ...]


def find_compiler() -> Compiler:
    """The p4c on PATH; raises MachineError where there is none."""
    for name, options in _COMPILERS:
        found = shutil.which(name)
        if found is not None:
            return Compiler(Path(found), _version(found), options)
    raise MachineError(
        "the P4 compiler p4c is not installed (neither p4c-bm2-ss nor p4c on PATH)",
        hint="`apt-get install p4lang-p4c`, with the apt source of docs/p4.md; only to change the P4 program",
    )


def compile_program(compiler: Compiler, folder: Path = FOLDER) -> dict[str, str]:
    """The compiled program as files: name → text. The same sources and compiler give the same bytes.

    Raises:
        UserInputError: the compiler refuses the sources; names file and line.
        MachineError: the compiler crashed, hangs, or wrote what cannot be read.
    """
    sha256 = source_sha256(folder)
    with tempfile.TemporaryDirectory(prefix="mltswitch-p4-") as name:
        output = Path(name)
        _run(compiler, folder, output)
        try:
            text = (output / DEVICE_CONFIG_FILE).read_text(encoding="utf-8")
            device_config = json.loads(text, object_hook=_without_source_places)
            p4info = (output / P4INFO_FILE).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise MachineError(f"wrote nothing that can be read: {error}", where=str(compiler.path)) from None
    device_config["program"] = MAIN_SOURCE
    device_config["__meta__"][BUILD_KEY] = {
        "source_sha256": sha256,
        "compiler": f"p4c {compiler.version}",
    }
    return {DEVICE_CONFIG_FILE: json.dumps(device_config, indent=1) + "\n", P4INFO_FILE: p4info}


def _run(compiler: Compiler, folder: Path, output: Path) -> None:
    """In the folder of the sources, so that the compiler knows no path of this machine."""
    target = output / DEVICE_CONFIG_FILE if not compiler.options else output
    command = [
        str(compiler.path),
        *compiler.options,
        *("--std", "p4-16"),
        *("-o", str(target)),
        *("--p4runtime-files", str(output / P4INFO_FILE)),
        MAIN_SOURCE,
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"has not finished after {COMPILE_SECONDS:g} s", where=str(compiler.path)
        ) from None
    except OSError as error:
        raise MachineError(f"cannot be started: {error.strerror}", where=str(compiler.path)) from None
    if done.returncode == 0:
        return
    complaint = _COMPLAINT.search(done.stderr)
    if complaint is not None:
        raise UserInputError(
            f"p4c refuses it: {complaint['text']}", where=f"{folder / complaint['place']}:{complaint['line']}"
        )
    said = " ".join(done.stderr.split())[:_MAXIMUM_COMPLAINT_CHARACTERS]
    raise MachineError(f"ended with status {done.returncode}: {said}", where=str(compiler.path))


def _version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"does not tell its version: {error}", where=path) from None
    found = _VERSION.search(done.stdout + done.stderr)  # p4c-bm2-ss tells it on stderr
    if found is None:
        raise MachineError("does not tell its version", where=path)
    return found[1] or found[2]


def _without_source_places(value: dict[str, Any]) -> dict[str, Any]:
    """Without `source_info`: file names, lines and fragments of source, which only BMv2's trace prints."""
    return {key: item for key, item in value.items() if key != "source_info"}
