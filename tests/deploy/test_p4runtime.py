"""The conversation with a BMv2 switch, on a model of its tables: what is asked, sent, and said."""

import dataclasses
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mltswitch.deploy import Status, connect, diff, push, verify
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Inventory, load_inventory
from mltswitch.p4.program import Program
from mltswitch.p4.queue_depth import set_queue_depth
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

    def set_queue_depth(address: str, port: int, packets: int) -> None:
        assert (address, port) == ("127.0.0.1", 9090)
        made.tables.enter(f"set_queue_depth {packets}")

    monkeypatch.setattr("mltswitch.p4.control.open_switch", open_switch)
    monkeypatch.setattr("mltswitch.deploy.p4runtime.set_queue_depth", set_queue_depth)
    monkeypatch.setattr("mltswitch.deploy.p4runtime.shipped_program", lambda: PROGRAM)
    return made


@pytest.fixture
def rack(tmp_path: Path) -> Inventory:
    (tmp_path / "hosts.yaml").write_text(
        "all:\n  vars: {mltswitch_platform: bmv2, mltswitch_device_id: 3}\n"
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
        "set_queue_depth 16384\n# replaces the program that runs: cookie 0x0000000000000001\nload_program\n"
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


def test_without_the_depth_of_queues_no_program_is_loaded(
    server: Server, rack: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltswitch.deploy.p4runtime.set_queue_depth", set_queue_depth)
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    for thrift_port, problem in ((port, "Connection refused"), (0, "mltswitch_thrift_port is 0")):
        device = dataclasses.replace(rack.devices[0], thrift_port=thrift_port)
        [failed] = push(bmv2_plan(), Inventory((device,), Path("inventory"))).devices
        assert failed.status is Status.FAILED
        assert "refuses step 1 of " in failed.error
        assert "'set_queue_depth 16384'" in failed.error
        assert problem in failed.error
        assert "\n" not in failed.error
        assert (server.cookie_of_program, server.written) == (None, [])


def test_two_switches_do_not_share_a_thrift_server(server: Server, rack: Inventory) -> None:
    """One of them would keep its 64 packets a queue, and nothing would tell."""
    [first] = rack.devices
    second = dataclasses.replace(first, name="spine1", switch="spine1", port=9560)
    with pytest.raises(
        UserInputError, match=r"spine1: its thrift server is 127\.0\.0\.1 port 9090, as that of"
    ):
        push(bmv2_plan(), Inventory((first, second), Path("inventory")))
    assert server.opened == []


@contextmanager
def thrift_server(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Its port, and what one caller said before it was answered."""
    said: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            said.append(connection.recv(4096))
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1], said
        thread.join()


REPLY = b"\x80\1\0\2\0\0\0\x1bset_all_egress_queue_depths\0\0\0\0\x08\0\0\0\0\0\0\0"


def test_the_depth_is_said_in_thrift() -> None:
    with thrift_server(REPLY) as (port, said):
        set_queue_depth("127.0.0.1", port, 16384)
    name = b"simple_switch:set_all_egress_queue_depths"
    arguments = b"\x08\0\1\0\0\x40\0\0"
    assert said == [b"\x80\1\0\1" + len(name).to_bytes(4, "big") + name + bytes(4) + arguments]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(b"", "answers nothing"), (b"\0\0\6\4\0\0", "answers b'"), (REPLY[:-2] + b"\1\0", "answers b'")],
)
def test_what_is_no_bmv2_is_one_line(answer: bytes, problem: str) -> None:
    with thrift_server(answer) as (port, _), pytest.raises(DeviceError, match="--with-thrift") as failure:
        set_queue_depth("127.0.0.1", port, 16384)
    assert problem in str(failure.value)
    assert "\n" not in str(failure.value)
