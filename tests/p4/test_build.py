"""Compiling: with the real p4c where there is one, and with compilers that fail where there is none."""

import json
import shutil
from pathlib import Path

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.p4 import build
from mltswitch.p4.build import Compiler, compile_program, find_compiler
from mltswitch.p4.program import (
    DEVICE_CONFIG_FILE,
    FOLDER,
    MAIN_SOURCE,
    P4INFO_FILE,
    source_files,
    source_sha256,
)
from tests.cli.test_cli import Run, refused, run

__all__ = ["run"]


@pytest.fixture
def p4c() -> Compiler:
    """The compiler of this machine."""
    try:
        return find_compiler()
    except MachineError:
        pytest.skip("p4c is not installed (docs/p4.md says where to get it)")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the P4 sources, to be changed."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for path in source_files():
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH but the shell's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
    path.chmod(0o755)


def compiler_that(folder: Path, *, name: str = "p4c-bm2-ss", does: str) -> None:
    """A script in p4c's place: it knows its version, and does what is said."""
    script(folder / name, f'if [ "$1" = --version ]; then echo Version 1.2.3; exit 0; fi\n{does}')


WRITES = (
    'while [ $# -gt 0 ]; do case "$1" in\n'
    '-o) json="$2"; shift 2;; --p4runtime-files) info="$2"; shift 2;; *) last="$1"; shift;; esac; done\n'
    '[ -d "$json" ] && json="$json/mlt.json"\n'
    'echo \'{"program": "/home/me/mlt.p4", "__meta__": {"version": [2, 23]}, "pipelines": '
    '[{"tables": [], "source_info": {"filename": "/home/me/mlt.p4"}}]}\' > "$json"\n'
    'echo "pkg_info {}" > "$info"; [ "$last" = mlt.p4 ] && [ -f mlt.p4 ]'
)


def test_what_is_shipped_is_what_p4c_makes_of_the_sources(p4c: Compiler) -> None:
    shipped = json.loads((FOLDER / DEVICE_CONFIG_FILE).read_text())["__meta__"]["mltswitch"]["compiler"]
    if shipped != f"p4c {p4c.version}":
        pytest.skip(f"compiled by {shipped}, and this machine has p4c {p4c.version}")
    made = compile_program(p4c)
    assert made == {name: (FOLDER / name).read_text() for name in (DEVICE_CONFIG_FILE, P4INFO_FILE)}


def test_the_folder_of_the_sources_leaves_no_trace(p4c: Compiler, sources: Path) -> None:
    (sources.parent / "other").mkdir()
    elsewhere = shutil.copytree(sources, sources.parent / "other" / "deeper")
    assert compile_program(p4c, sources) == compile_program(p4c, elsewhere)
    assert {path.name for path in sources.iterdir()} == {path.name for path in source_files()}


def test_a_fault_in_the_source_is_named_with_file_and_line(p4c: Compiler, sources: Path) -> None:
    path = sources / "trust.p4"
    lines = path.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "metadata.is_untrusted = 1;" in line)
    lines[number - 1] = "        metadata.is_untrusted = whatever;"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserInputError, match="whatever") as raised:
        compile_program(p4c, sources)
    assert raised.value.where == f"{path}:{number}"


def test_without_p4c_one_line_says_where_to_get_it(compilers: Path) -> None:
    with pytest.raises(MachineError, match=r"p4c is not installed.*docs/p4\.md"):
        find_compiler()
    compiler_that(compilers, does="true")
    assert find_compiler() == Compiler(compilers / "p4c-bm2-ss", "1.2.3", ())


@pytest.mark.parametrize("name", ["p4c-bm2-ss", "p4c"])
def test_the_driver_and_the_back_end_are_called_as_they_want(
    compilers: Path, sources: Path, name: str
) -> None:
    compiler_that(compilers, name=name, does=WRITES)
    made = compile_program(find_compiler(), sources)
    data = json.loads(made[DEVICE_CONFIG_FILE])
    assert data["program"] == MAIN_SOURCE
    assert data["pipelines"] == [{"tables": []}]
    assert data["__meta__"]["mltswitch"] == {
        "source_sha256": source_sha256(sources),
        "compiler": "p4c 1.2.3",
    }
    assert made[P4INFO_FILE] == "pkg_info {}\n"


def test_what_the_compiler_complains_of_is_the_users_to_mend(compilers: Path, sources: Path) -> None:
    compiler_that(
        compilers,
        does="echo 'mlt.p4(7): [--Wwarn=unused] warning: x' >&2; "
        "echo 'parser.p4(12): [--Werror=type-error] error: y: wrong' >&2; exit 1",
    )
    with pytest.raises(UserInputError, match=r"p4c refuses it: .*error: y: wrong") as raised:
        compile_program(find_compiler(), sources)
    assert raised.value.where == f"{sources / 'parser.p4'}:12"


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo out of memory >&2; exit 9", "ended with status 9: out of memory"),
        ("kill -SEGV $$", "ended with status -11"),
        ("exit 0", "wrote nothing that can be read"),
        (WRITES.replace('{"program"', '"program"'), "wrote nothing that can be read"),
    ],
)
def test_a_compiler_that_fails_is_the_machines_fault(
    compilers: Path, sources: Path, does: str, said: str
) -> None:
    compiler_that(compilers, does=does)
    with pytest.raises(MachineError, match=said):
        compile_program(find_compiler(), sources)


def test_a_compiler_that_hangs_is_ended(
    compilers: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "COMPILE_SECONDS", 0.2)
    compiler_that(compilers, does="exec sleep 600")
    with pytest.raises(MachineError, match=r"has not finished after 0\.2 s"):
        compile_program(find_compiler(), sources)


def test_a_compiler_without_a_version_is_none(compilers: Path) -> None:
    script(compilers / "p4c", "echo I am a sandwich")
    with pytest.raises(MachineError, match="does not tell its version"):
        find_compiler()


def test_build_writes_both_files_and_check_compares_them(run: Run, compilers: Path, tmp_path: Path) -> None:
    compiler_that(compilers, does=WRITES)
    missing = run("p4", "build", "--check", "-o", "compiled")
    assert missing.code == 5
    assert "compiled/mlt.json, compiled/mlt.p4info.txtpb" in missing.err
    assert not (tmp_path / "compiled").exists()
    (tmp_path / "compiled").mkdir()
    built = run("p4", "build", "-o", "compiled", "--json")
    assert built.code == 0
    assert built.json() == {
        "source_sha256": source_sha256(),
        "compiler": "p4c 1.2.3",
        "files": ["compiled/mlt.json", "compiled/mlt.p4info.txtpb"],
    }
    assert run("p4", "build", "--check", "-o", "compiled").code == 0
    (tmp_path / "compiled" / "mlt.json").write_text("{}")
    differing = run("p4", "build", "--check", "-o", "compiled")
    assert differing.code == 5
    assert "compiled/mlt.json" in differing.err
    assert "p4info" not in differing.err
    assert (tmp_path / "compiled" / "mlt.json").read_text() == "{}"


def test_build_without_p4c_writes_nothing(run: Run, compilers: Path, tmp_path: Path) -> None:
    assert list(compilers.iterdir()) == []
    line = refused(run("p4", "build", "-o", "."), tmp_path, code=3, leaves=("bin",))
    assert "docs/p4.md" in line


def test_info_describes_what_is_shipped(run: Run) -> None:
    described = run("p4", "info", "--json").json()
    assert described["is_current"] is True
    assert described["program"]["source_sha256"] == source_sha256()
    sizes = {entry["name"]: entry["size"] for entry in described["program"]["tables"]}
    assert sizes["queues"] == 4096
    shown = run("p4", "info")
    assert shown.code == 0
    assert source_sha256() in shown.out
    for word in (*sizes, "decisions", "policers", "admitted"):
        assert word in shown.out
