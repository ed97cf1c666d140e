"""The conversation with a BMv2 switch, on a model of its tables: what is asked, sent, and said."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mltswitch.deploy import Status, connect, diff, push, verify
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device, Inventory, load_inventory
from mltswitch.p4.program import Program
from mltswitch.targets import Step
from mltswitch.targets.bmv2 import TARGET
from tests.deploy.test_bmv2_end_to_end import bmv2_plan
from tests.targets.bmv2.device import RefusedError, Switch

PROGRAM = Program("", b"", "ab" * 32)


@dataclass
class Server:
    """Stands for the switch's P4Runtime server; `opened` are the roles in which it was connected to."""

    tables: Switch = field(default_factory=lambda: Switch("none"))
    cookie_of_program: int | None = None
    other_primary: bool = False
    opened: list[bool] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    refusing: str = ""

    def cookie(self) -> int | None:
        return self.cookie_of_program

    def load(self, program: Program) -> None:
        self.tables.enter("load_program")
        self.cookie_of_program = program.cookie

    def write(self, lines: Sequence[str]) -> None:
        for line in lines:
            try:
                self.tables.enter("refuse this" if self.refusing and self.refusing in line else line)
            except RefusedError as error:
                raise DeviceError(f"refuses line 1 of 1, {line!r}: {error}", where="unix:/x") from None
            self.written.append(line)

    def entries(self) -> tuple[str, ...]:
        return tuple(self.tables.answers()["entries"].splitlines())

    def meters(self) -> tuple[str, ...]:
        return tuple(self.tables.answers()["meters"].splitlines())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()

    @contextmanager
    def open_switch(address: str, *, device_id: int, primary: bool) -> Iterator[Server]:
        assert (address, device_id) == ("127.0.0.1:9559", 3)
        if primary and made.other_primary:
            raise DeviceError("another controller is primary (election id 1)", where=address, hint="end it")
        made.opened.append(primary)
        yield made

    monkeypatch.setattr("mltswitch.p4.control.open_switch", open_switch)
    monkeypatch.setattr("mltswitch.deploy.p4runtime.shipped_program", lambda: PROGRAM)
    return made


@pytest.fixture
def rack(tmp_path: Path) -> Inventory:
    (tmp_path / "hosts.yaml").write_text(
        "all:\n  vars: {mltswitch_platform: bmv2, mltswitch_thrift_port: 0, mltswitch_device_id: 3}\n"
        "  hosts:\n    leaf1: {ansible_host: 127.0.0.1}\n",
        encoding="utf-8",
    )
    return load_inventory(tmp_path)


def test_push_verify_push(server: Server, rack: Inventory) -> None:
    plan = bmv2_plan()
    [first] = push(plan, rack).devices
    assert (first.status, first.error) == (Status.CHANGED, "")
    assert server.opened == [False, True]
    assert len(server.written) > 20
    server.opened.clear()
    assert verify(plan, rack).exit_code == 0
    [second] = push(plan, rack).devices
    assert (second.status, second.change) == (Status.OK, "")
    assert server.opened == [False, False], "who only reads is never primary"


def test_a_program_of_somebody_else_is_not_read(server: Server, rack: Inventory) -> None:
    server.cookie_of_program = 1
    [found] = diff(bmv2_plan(), rack).devices
    assert found.status is Status.WOULD_CHANGE
    assert found.change.startswith(
        "# replaces the program that runs: cookie 0x0000000000000001\nload_program\n"
    )
    assert "another program (cookie 0x0000000000000001)" in found.notes[0]


def test_a_refused_line_ends_the_push(server: Server, rack: Inventory) -> None:
    server.refusing = "neighbours"
    [failed] = push(bmv2_plan(), rack).devices
    assert failed.status is Status.FAILED
    assert failed.error.startswith("leaf1 (127.0.0.1:9559): refuses step ")
    assert "unknown command refuse" in failed.error
    assert not [line for line in server.written if "neighbours" in line or "routes" in line]
    server.refusing = ""
    assert push(bmv2_plan(), rack).exit_code == 0


def test_another_primary_is_one_line(server: Server, rack: Inventory) -> None:
    server.other_primary = True
    [failed] = push(bmv2_plan(), rack).devices
    assert "leaf1 (127.0.0.1:9559): another controller is primary (election id 1)" in failed.error
    assert "End it." in failed.error
    assert server.written == []
    assert verify(bmv2_plan(), rack).devices[0].status is Status.DIFFERS


def test_questions_and_lines_that_it_does_not_know(server: Server, rack: Inventory) -> None:
    server.load(PROGRAM)
    with connect(rack.devices[0], TARGET) as conversation:
        conversation.apply(())
        assert server.opened == [False]
        with pytest.raises(DeviceError, match="has no answer to 'show version'"):
            conversation.ask("show version")
        with pytest.raises(DeviceError, match="refuses step 2 of 2, 'table_delete_match groups 1'"):
            conversation.apply((Step("set_queue_depth 5"), Step("table_delete_match groups 1")))


def with_client(device: Device, folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """A rack whose thrift port is reached by a client that does what the script says."""
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    if script:
        client = folder / "simple_switch_CLI"
        client.write_text(f"#!/bin/sh\n{script}\n")
        client.chmod(0o755)
    return Inventory((dataclasses.replace(device, thrift_port=9090),), Path("inventory"))


def test_the_depth_goes_to_the_client_of_the_switch(
    server: Server, rack: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f'echo "$@" >{tmp_path}/arguments; cat >{tmp_path}/input; echo "RuntimeCmd: "'
    reached = with_client(rack.devices[0], tmp_path / "bin", script, monkeypatch)
    [pushed] = push(bmv2_plan(), reached).devices
    assert (pushed.status, pushed.error) == (Status.CHANGED, "")
    assert (tmp_path / "arguments").read_text() == "--thrift-ip 127.0.0.1 --thrift-port 9090\n"
    assert (tmp_path / "input").read_text() == "set_queue_depth 16384\n"


def test_the_client_is_tried_again_with_the_systems_python(
    server: Server, rack: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with `#!/usr/bin/env python3`, and needs a package that a virtual environment lacks."""
    script = (
        f'echo "$PATH" >>{tmp_path}/paths; case $PATH in /usr/bin:*) ;; '
        "*) echo 'ModuleNotFoundError: thrift' >&2; exit 1 ;; esac"
    )
    reached = with_client(rack.devices[0], tmp_path / "bin", script, monkeypatch)
    assert push(bmv2_plan(), reached).exit_code == 0
    assert len((tmp_path / "paths").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("", "simple_switch_CLI is not installed"),
        ("echo 'RuntimeCmd: Error: no such depth'", "port 9090: Error: no such depth"),
        ("echo 'Could not connect to thrift client on port 9090' >&2; exit 1", "Could not connect to thrift"),
        ("exit 3", "simple_switch_CLI fails at port 9090: no message (exit status 3)"),
        (
            "echo 'Traceback'; echo 'ModuleNotFoundError: thrift' >&2; exit 1",
            "ModuleNotFoundError: thrift (exit",
        ),
        ("exec sleep 60", "has not finished after 0.2 s"),
    ],
)
def test_a_client_that_fails_is_one_line(
    server: Server,
    rack: Inventory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    problem: str,
) -> None:
    monkeypatch.setattr("mltswitch.deploy.p4runtime.CLI_SECONDS", 0.2 if "sleep" in script else 20.0)
    reached = with_client(rack.devices[0], tmp_path / "bin", script, monkeypatch)
    [failed] = push(bmv2_plan(), reached).devices
    assert failed.status is Status.FAILED
    assert "'set_queue_depth 16384'" in failed.error
    assert problem in failed.error
    assert "\n" not in failed.error
    assert [line for line in server.written if "queues" in line] == []
