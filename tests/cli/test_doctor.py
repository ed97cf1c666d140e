"""`mltswitch doctor`: what is missing is named with what it is needed for and the command that mends it."""

import errno
import os
import pwd
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from click.testing import CliRunner

from mltswitch.app import doctor
from mltswitch.app.doctor import DEVELOPMENT, EXTRAS, Need, operator_needs
from mltswitch.cli import cli
from mltswitch.hostagent.doctor.report import Status

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
Patch = pytest.MonkeyPatch


def by_name() -> dict[str, Need]:
    needs = [*operator_needs()]
    assert len({each.where for each in needs}) == len(needs)
    return {each.where: each for each in needs}


def test_every_need_says_what_for_and_what_is_missing_how_to_mend_it() -> None:
    for need in by_name().values():
        assert need.what
        assert need.needed_for
        assert (need.status is Status.OK) == (need.hint == "")
        assert need.status is Status.OK or need.hint.count("`") == 2


def test_every_extra_says_what_it_is_needed_for() -> None:
    declared = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert EXTRAS.keys() == declared.keys() - DEVELOPMENT
    assert declared.keys() >= DEVELOPMENT


def test_an_extra_of_another_version_is_told_as_unknown(monkeypatch: Patch) -> None:
    for name in ("deploy", "lab"):
        monkeypatch.delitem(doctor.EXTRAS, name)
    found = by_name()
    assert {found[f"extra {name}"].needed_for for name in ("deploy", "lab")} == {doctor.UNKNOWN}
    assert not [each for each in DEVELOPMENT if f"extra {each}" in found]


def without(package: str, instead: str = "") -> Callable[[Patch, Path], None]:
    """An installation that lacks a package, or has an old one."""

    def patch(monkeypatch: Patch, _folder: Path) -> None:
        def installed(name: str) -> str:
            if name == package and not instead:
                raise PackageNotFoundError(name)
            return instead if name == package else version(name)

        monkeypatch.setattr(doctor, "version", installed)

    return patch


def uninstalled(monkeypatch: Patch, _folder: Path) -> None:
    monkeypatch.setattr(doctor, "DISTRIBUTION", "mltswitch-that-nobody-has")


def empty_path(monkeypatch: Patch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder))


def empty_home(monkeypatch: Patch, folder: Path) -> None:
    monkeypatch.setenv("HOME", str(folder))


def home_without_keys(monkeypatch: Patch, folder: Path) -> None:
    (folder / ".ssh").mkdir()
    (folder / ".ssh" / "known_hosts").write_text("# none yet\n")
    monkeypatch.setenv("HOME", str(folder))


def open_state(monkeypatch: Patch, folder: Path) -> None:
    folder.chmod(0o755)
    monkeypatch.setenv("MLTSWITCH_STATE", str(folder))


def state_in_a_file(monkeypatch: Patch, folder: Path) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("MLTSWITCH_STATE", str(folder / "file" / "state"))


def closed_state(monkeypatch: Patch, folder: Path) -> None:
    """A folder into which this user may not look, as it is for others than root."""
    closed, stat = folder / "closed", Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if closed in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    closed.mkdir()
    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(os, "access", lambda path, _mode: path != closed)
    monkeypatch.setenv("MLTSWITCH_STATE", str(closed / "x" / "y"))


def homeless(monkeypatch: Patch, _folder: Path) -> None:
    """A user whom the system does not know, as in a container that runs under some number."""
    for name in ("HOME", "XDG_STATE_HOME", "MLTSWITCH_STATE"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.parametrize(
    ("patch", "where", "what", "hint", "code"),
    [
        (without("numpy"), "packages", "numpy is missing", "pip install 'mltswitch'", 3),
        (without("numpy", "1.2"), "packages", "numpy 1.2 is not >=1.26", "pip install 'mltswitch'", 3),
        (uninstalled, "packages", "nobody knows what it requires", "pip install .", 3),
        (without("paramiko"), "extra deploy", "paramiko is missing", "pip install 'mltswitch[deploy]'", 0),
        (without("plotly", "5.0"), "extra report", "plotly 5.0 is not", "pip install 'mltswitch[report]'", 0),
        (empty_path, "ssh", "missing", "apt-get install openssh-client", 0),
        (empty_path, "kernel, for a lab", "unshare is not installed", "apt-get install iproute2", 0),
        (empty_path, "simple_switch_grpc", "missing", "apt-get install p4lang-bmv2", 0),
        (empty_path, "p4c", "not installed", "apt-get install p4lang-p4c", 0),
        (empty_home, "~/.ssh/known_hosts", "missing", "mltswitch trust -i INVENTORY", 0),
        (home_without_keys, "~/.ssh/known_hosts", "no host key", "mltswitch trust -i INVENTORY", 0),
        (open_state, "state directory", "others may read or write", "chmod o-rwx /", 0),
        (closed_state, "state directory", "closed cannot be written", "export MLTSWITCH_STATE=FOLDER", 0),
        (homeless, "state directory", "no home directory", "export MLTSWITCH_STATE=FOLDER", 0),
        (homeless, "~/.ssh/known_hosts", "no home directory", "export HOME=FOLDER", 0),
        (state_in_a_file, "state directory", "cannot be written", "export MLTSWITCH_STATE=FOLDER", 0),
    ],
)
def test_what_is_missing(
    patch: Callable[[Patch, Path], None],
    where: str,
    what: str,
    hint: str,
    code: int,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    patch(monkeypatch, tmp_path)
    [need] = [each for name, each in by_name().items() if name.startswith(where)]
    assert need.status is (Status.ERROR if code else Status.WARNING)
    assert what in need.what
    assert need.hint.startswith(f"`{hint}")
    ended = CliRunner().invoke(cli, ["doctor", "--missing"], standalone_mode=False, catch_exceptions=False)
    assert ended.return_value == code
    assert need.where in ended.stdout
    assert " ok " not in ended.stdout


@pytest.mark.parametrize(
    ("package", "command"), [("numpy", ["doctor"]), ("pydantic", ["plan", "--help"]), ("yaml", ["verify"])]
)
def test_a_command_without_a_package_that_all_need(package: str, command: list[str]) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from mltswitch.cli import main; main({command})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert ended.stderr.startswith(f"mltswitch: the Python package {package} is missing. `pip install")
    assert ended.stderr.count("\n") == 1
