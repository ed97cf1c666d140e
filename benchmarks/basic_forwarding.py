"""The least that forwards IPv4, basic_forwarding.p4, as p4c made it: shipped, so that no compiler is needed.

    python -m benchmarks.basic_forwarding      # compile it anew, after a change

It is built as mltswitch's own program is, and like there the hash of the source lies in the compiled file.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from mltswitch.errors import MltswitchError
from mltswitch.outputs import write_atomically
from mltswitch.p4.build import compile_program, find_compiler
from mltswitch.p4.program import (
    DEVICE_CONFIG_FILE,
    MAIN_SOURCE,
    P4INFO_FILE,
    Program,
    read_program,
    source_sha256,
)

FOLDER: Final = Path(__file__).parent
SOURCE: Final = FOLDER / "basic_forwarding.p4"
COMPILED: Final = {
    DEVICE_CONFIG_FILE: FOLDER / "basic_forwarding.json",
    P4INFO_FILE: FOLDER / "basic_forwarding.p4info.txtpb",
}
"""What the build names a file → where it lies."""


def basic_forwarding() -> Program:
    """The shipped program; raises MachineError where it is missing or damaged."""
    with _as_own_program() as folder:
        return read_program(folder)


def compile_source() -> dict[Path, str]:
    """What p4c makes of the source now: file → text; raises MachineError where there is no p4c."""
    with _as_own_program() as folder:
        compiled = compile_program(find_compiler(), folder)
    return {COMPILED[name]: text for name, text in compiled.items()}


def current_sha256() -> str:
    """Of the source as it is, in the way of `Program.source_sha256`."""
    with _as_own_program() as folder:
        return source_sha256(folder)


@contextmanager
def _as_own_program() -> Iterator[Path]:
    """A folder where source and compiled files have the names that mltswitch's build gives its own."""
    with tempfile.TemporaryDirectory(prefix="mltswitch-basic-") as name:
        folder = Path(name)
        shutil.copyfile(SOURCE, folder / MAIN_SOURCE)
        for own_name, path in COMPILED.items():
            if path.exists():
                shutil.copyfile(path, folder / own_name)
        yield folder


@click.command()
def main() -> None:
    """Compile benchmarks/basic_forwarding.p4 anew."""
    try:
        for path, text in compile_source().items():
            write_atomically(path, text)
            click.echo(str(path))
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
