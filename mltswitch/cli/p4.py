"""`mltswitch p4`: the P4 program of BMv2 switches, compiled and described."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType

from mltswitch.cli.command import command, flag, group, option
from mltswitch.cli.options import FOLDER as FOLDER_TYPE
from mltswitch.cli.output import Answer, table
from mltswitch.documents import read_text
from mltswitch.errors import UserInputError, VerificationError
from mltswitch.outputs import write_together
from mltswitch.p4.build import compile_program, find_compiler
from mltswitch.p4.program import FOLDER, shipped_program, source_sha256, summary


@command("mltswitch p4 build", "mltswitch p4 build --check", "mltswitch p4 build -o compiled")
def build(
    check: bool = flag("Write nothing; fail where a file differs from what p4c makes."),
    output: Path = option(
        "Folder of the compiled files.",
        FOLDER_TYPE,
        "-o",
        "--output",
        default=FOLDER,
        show_default="the installed package",
    ),
) -> Answer:
    """Compile the P4 sources with p4c into what a switch loads."""
    compiler = find_compiler()
    files = {output / name: text for name, text in compile_program(compiler).items()}
    if check:
        differing = [str(path) for path, text in files.items() if _current(path) != text]
        if differing:
            raise VerificationError(
                f"differs from what p4c {compiler.version} makes of the sources: {', '.join(differing)}",
                hint="`mltswitch p4 build` writes it anew; another version of p4c may differ without a fault",
            )
    else:
        write_together(files.items(), within=output)
    built = {
        "source_sha256": source_sha256(),
        "compiler": f"p4c {compiler.version}",
        "files": [str(path) for path in files],
    }
    return Answer(built, (f"{path}: as p4c makes it" if check else str(path) for path in files))


@command("mltswitch p4 info --json")
def info() -> Answer:
    """What the compiled program holds. Tables and their sizes, counters, hash of the sources, compiler."""
    found = summary(shipped_program())
    is_current = source_sha256() == found.source_sha256

    def text() -> Iterator[RenderableType]:
        yield f"sources: sha256 {found.source_sha256}"
        yield f"compiled by: {found.compiler}"
        if not is_current:
            yield "The P4 sources have changed since: `mltswitch p4 build` compiles them."
        rows = [(each.name, ", ".join(each.key), ", ".join(each.actions), each.size) for each in found.tables]
        yield table("Tables", "table | key | actions | entries at most #", rows)
        kinds = {"counter": found.counters, "meter": found.meters, "register": found.registers}
        arrays = [(kind, name, size) for kind, sizes in kinds.items() for name, size in sizes.items()]
        yield table("Arrays", "kind | name | cells #", arrays)

    return Answer({"program": found, "is_current": is_current}, text())


def _current(path: Path) -> str | None:
    """What stands in a file; None where there is none."""
    try:
        return read_text(path)
    except UserInputError:
        return None


p4_group = group(
    "p4",
    "The P4 program that makes a BMv2 switch do what MLT asks.",
    build,
    info,
    examples=("mltswitch p4 info",),
)
