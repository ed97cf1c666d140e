"""Both ends of the spool in one kernel."""

import io
import threading
import time
from pathlib import Path

import pytest

from mltswitch.errors import MachineError
from mltswitch.lab import spool


@pytest.fixture
def served(tmp_path: Path) -> Path:
    threading.Thread(target=spool.serve, args=(tmp_path,), daemon=True).start()
    return tmp_path


def run(folder: Path, *argv: str) -> tuple[int, bytes, bytes]:
    out, err = io.BytesIO(), io.BytesIO()
    code = spool.submit(folder, argv, alive=lambda: True, out=out, err=err)
    return code, out.getvalue(), err.getvalue()


def test_output_and_exit_code_come_back(served: Path) -> None:
    assert run(served, "sh", "-c", "echo told; echo wrong >&2; exit 3") == (3, b"told\n", b"wrong\n")


def test_arguments_are_not_a_shells(served: Path) -> None:
    assert run(served, "printf", "%s", "a b; $(id)") == (0, b"a b; $(id)", b"")


def test_a_killed_command_has_a_shells_exit_code(served: Path) -> None:
    assert run(served, "sh", "-c", "kill -9 $$")[0] == 137


def test_much_output_arrives_whole(served: Path) -> None:
    code, out, _ = run(served, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    assert code == 0
    assert out.splitlines()[-1] == b"line 19999"
    assert len(out.splitlines()) == 20000


def test_a_program_that_does_not_exist(served: Path) -> None:
    code, _, err = run(served, "no-such-program")
    assert code == spool.NOT_RUN
    assert err == b"no-such-program: No such file or directory\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\xff",
        b"[1]",
        b"[" * 100_000,
        b'{"argv": ["true"]}',
        b'{"argv": [], "directory": "/", "environment": {}}',
        b'{"argv": [1], "directory": "/", "environment": {}}',
        b'{"argv": ["a\\u0000"], "directory": "/", "environment": {}}',
        b'{"argv": ["true"], "directory": "/", "environment": null}',
    ],
)
def test_a_damaged_request_is_answered_and_the_next_one_runs(served: Path, request_bytes: bytes) -> None:
    spool._write(served / "damaged.request", request_bytes)
    deadline = time.monotonic() + 60
    while not (served / "damaged.exit").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (served / "damaged.exit").read_text() == str(spool.NOT_RUN)
    assert b"the command cannot be" in (served / "damaged.err").read_bytes()
    assert run(served, "echo", "next") == (0, b"next\n", b"")


def test_a_command_that_is_too_long(served: Path) -> None:
    code, _, err = run(served, "echo", "x" * spool.MAXIMUM_REQUEST_BYTES)
    assert code == spool.NOT_RUN
    assert err == b"the command cannot be understood: it is longer than 1048576 bytes\n"


def test_nothing_is_left(served: Path) -> None:
    run(served, "true")
    assert not list(served.iterdir())


def test_the_other_side_has_ended(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="user-mode-linux has ended"):
        spool.submit(tmp_path, ["true"], alive=lambda: False, out=io.BytesIO(), err=io.BytesIO())
