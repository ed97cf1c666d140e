"""`mltswitch p4`: the P4 program of BMv2 switches, compiled and described."""

from pathlib import Path

import click

from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.documents import read_text
from mltswitch.errors import UserInputError, VerificationError
from mltswitch.outputs import write_together
from mltswitch.p4.build import compile_program, find_compiler
from mltswitch.p4.program import (
    FOLDER,
    ProgramSummary,
    shipped_program,
    source_sha256,
    summary,
)


@click.group("p4", epilog="\b\nExample:\n  mltswitch p4 info")
def p4_group() -> None:
    """The P4 program that makes a BMv2 switch do what MLT asks."""


@p4_group.command(
    epilog="\b\nExamples:\n  mltswitch p4 build\n  mltswitch p4 build --check\n"
    "  mltswitch p4 build -o compiled"
)
@click.option("--check", is_flag=True, help="Write nothing; fail where a file differs from what p4c makes.")
@click.option(
    "-o",
    "--output",
    default=FOLDER,
    show_default="the installed package",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the compiled files.",
)
@json_option
def build(check: bool, output: Path, as_json: bool) -> None:
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
    if as_json:
        print_json(built)
        return
    for path in files:
        click.echo(f"{path}: as p4c makes it" if check else path)


@p4_group.command(epilog="\b\nExample:\n  mltswitch p4 info --json")
@json_option
def info(as_json: bool) -> None:
    """What the compiled program holds. Tables and their sizes, counters, hash of the sources, compiler."""
    found = summary(shipped_program())
    is_current = source_sha256() == found.source_sha256
    if as_json:
        print_json({"program": found, "is_current": is_current})
        return
    _print_summary(found, is_current=is_current)


def _print_summary(found: ProgramSummary, *, is_current: bool) -> None:
    click.echo(f"sources: sha256 {found.source_sha256}")
    click.echo(f"compiled by: {found.compiler}")
    if not is_current:
        click.echo("The P4 sources have changed since: `mltswitch p4 build` compiles them.")
    rows = [
        (entry.name, ", ".join(entry.key), ", ".join(entry.actions), entry.size) for entry in found.tables
    ]
    console().print(table("Tables", ("table", "key", "actions", "entries at most #"), rows))
    kinds = {"counter": found.counters, "meter": found.meters, "register": found.registers}
    arrays = [(kind, name, size) for kind, sizes in kinds.items() for name, size in sizes.items()]
    console().print(table("Arrays", ("kind", "name", "cells #"), arrays))


def _current(path: Path) -> str | None:
    """None: there is none."""
    try:
        return read_text(path)
    except UserInputError:
        return None
