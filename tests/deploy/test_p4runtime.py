"""The session with a BMv2 switch, on a model of its tables: what is asked, sent, and said."""

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
from mltswitch.p4.queue_depth import port_mtus, priority_queues, set_queue_depth
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
    queues: int = 8
    mtus: dict[int, int] | DeviceError = field(default_factory=dict)
    depths_set: int = 0

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
        made.depths_set += 1

    def port_mtus(*_: object) -> dict[int, int]:
        if isinstance(made.mtus, DeviceError):
            raise made.mtus
        return made.mtus

    monkeypatch.setattr("mltswitch.p4.control.open_switch", open_switch)
    monkeypatch.setattr("mltswitch.deploy.p4runtime.set_queue_depth", set_queue_depth)
    monkeypatch.setattr("mltswitch.deploy.p4runtime.priority_queues", lambda *_: made.queues)
    monkeypatch.setattr("mltswitch.deploy.p4runtime.port_mtus", port_mtus)
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
    assert server.depths_set == 2, "nothing reads the depth, so each push sets it"


@pytest.mark.parametrize("mtus", [{}, DeviceError("its list of ports cannot be read")])
@pytest.mark.parametrize(("queues", "fits"), [(1, False), (4, False), (7, False), (8, True)])
def test_a_switch_with_fewer_queues_than_the_plan_is_refused(
    server: Server, rack: Inventory, queues: int, fits: bool, mtus: dict[int, int] | DeviceError
) -> None:
    server.queues, server.mtus = queues, mtus
    [pushed], [seen] = push(bmv2_plan(), rack).devices, verify(bmv2_plan(), rack).devices
    assert any("MTUs of its ports: its list of ports" in each for each in seen.notes) is (fits and bool(mtus))
    assert (pushed.status is Status.CHANGED) is (seen.status is Status.OK) is fits
    if not fits:
        assert f"has {queues} priority queue" in pushed.error
        assert "the plan uses 8. Start it again with `-- --priority-queues 8`" in pushed.error
        assert "Nothing was sent" in pushed.error
        assert (server.written, server.cookie_of_program, server.depths_set) == ([], None, 0)
        assert any(f"has {queues} priority queue" in each.found for each in seen.differences)


def test_as_many_queues_as_the_plan_uses_are_enough() -> None:
    state = TARGET.fit_to_hardware(bmv2_plan(), "leaf1").state
    ports = tuple(
        dataclasses.replace(
            port,
            queues=tuple(
                dataclasses.replace(queue, queue=len(port.queues) - place)
                for place, queue in enumerate(port.queues, start=1)
            ),
        )
        for port in state.ports
    )
    state = dataclasses.replace(state, ports=ports)
    switch = Switch("none")
    change = TARGET.diff(
        TARGET.read(switch.answers(), state, TARGET.hardware(None)), state, TARGET.hardware(None)
    )
    assert change.trial is not None
    needed = len(ports[0].queues)
    assert change.trial.judge(str(needed)) == ()
    with pytest.raises(DeviceError, match=f"the plan uses {needed}"):
        change.trial.judge(str(needed - 1))


def test_what_thrift_does_not_tell_is_said(server: Server, rack: Inventory) -> None:
    push(bmv2_plan(), rack)
    silent = dataclasses.replace(rack.devices[0], thrift_port=0)
    [found] = verify(bmv2_plan(), Inventory((silent,), Path("inventory"))).devices
    assert found.status is Status.OK
    assert any(
        "nobody can tell whether the switch has the plan's 8 priority queues" in n for n in found.notes
    )
    server.mtus = {1: 1400, 2: 9000}
    [found] = verify(bmv2_plan(), rack).devices
    assert [note for note in found.notes if "MTU" in note] == [
        "eth1 has an MTU of 1400, below the plan's 1500: the kernel drops longer packets, which the switch "
        "counts as forwarded"
    ]


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
    assert "unknown command 'refuse'" in failed.error
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
    with connect(rack.devices[0], TARGET) as session:
        session.apply(())
        assert server.opened == [False]
        with pytest.raises(DeviceError, match="has no answer to 'show version'"):
            session.ask("show version")
        with pytest.raises(DeviceError, match="refuses step 2 of 2, 'table_delete_match groups 1'"):
            session.apply((Step("set_queue_depth 5"), Step("table_delete_match groups 1")))


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
def thrift_server(*connections: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """The port of a server that answers each connection so, in order, and what it is told."""
    said: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for answers in connections:
            connection, _ = listener.accept()
            with connection:
                for each in answers:
                    said.append(connection.recv(4096))
                    connection.sendall(each)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1], said
        thread.join()


REPLY = b"\x80\1\0\2\0\0\0\x1bset_all_egress_queue_depths\0\0\0\0\x08\0\0\0\0\0\0\0"


def test_the_depth_is_said_in_thrift() -> None:
    second = REPLY.replace(b"\x1bset_all_egress_queue_depths", b"\x1aset_all_egress_queue_rates")
    with thrift_server([REPLY, second]) as (port, said):
        set_queue_depth("127.0.0.1", port, 16384)
    name = b"simple_switch:set_all_egress_queue_depths"
    arguments = b"\x08\0\1\0\0\x40\0\0"
    rates = b"simple_switch:set_all_egress_queue_rates"
    assert said == [
        b"\x80\1\0\1" + len(name).to_bytes(4, "big") + name + bytes(4) + arguments,
        b"\x80\1\0\1" + len(rates).to_bytes(4, "big") + rates + bytes(4) + b"\x0a\0\1" + bytes(9),
    ]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(b"", "answers nothing"), (b"\0\0\6\4\0\0", "answers b'"), (REPLY[:-2] + b"\1\0", "answers b'")],
)
def test_what_is_no_bmv2_is_one_line(answer: bytes, problem: str) -> None:
    with thrift_server([answer]) as (port, _), pytest.raises(DeviceError, match="--with-thrift") as failure:
        set_queue_depth("127.0.0.1", port, 16384)
    assert problem in str(failure.value)
    assert "\n" not in str(failure.value)


ONE = b"\0\0\0\x1fset_egress_priority_queue_depth\0\0\0\0"
RANGE_ERROR = b"vector::_M_range_check: __n (which is 7) >= this->size() (which is 1)"
TAKEN = b"\x80\1\0\2" + ONE + b"\x08\0\0\0\0\0\0\0"
NOT_TAKEN = b"\x80\1\0\3" + ONE + b"\x0b\0\1\0\0\0\x45" + RANGE_ERROR + b"\x08\0\2\0\0\0\6\0"


@pytest.mark.parametrize("queues", [8, 4, 1])
def test_queues_are_counted_by_the_depths_that_the_switch_takes(queues: int) -> None:
    with thrift_server(*[[NOT_TAKEN]] * (8 - queues), [TAKEN]) as (port, _):
        assert priority_queues("127.0.0.1", port) == queues


def test_a_switch_that_takes_no_depth_is_an_error() -> None:
    with (
        thrift_server(*[[NOT_TAKEN]] * 8) as (port, _),
        pytest.raises(DeviceError, match="refuses every queue"),
    ):
        priority_queues("127.0.0.1", port)
    with thrift_server([b"\0\0\6\4\0\0"]) as (port, _), pytest.raises(DeviceError, match="answers b'"):
        priority_queues("127.0.0.1", port)


def test_the_mtu_of_a_port_is_that_of_its_interface(tmp_path: Path) -> None:
    extra = b"\x0d\0\4\x0b\x0b\0\0\0\1" + b"\0\0\0\1a" + b"\0\0\0\1b"
    entry = b"\x08\0\1\0\0\0\7" + b"\x0b\0\2\0\0\0\2lo" + b"\2\0\3\1" + extra + b"\0"
    answer = b"\x80\1\0\2\0\0\0\x15bm_dev_mgr_show_ports\0\0\0\0\x0f\0\0\x0c\0\0\0\1" + entry + b"\0"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "p4runtime"))
        server.listen()
        with thrift_server([answer]) as (port, _):
            found = port_mtus(f"unix:{tmp_path / 'p4runtime'}", port)
        assert found == {7: int(Path("/sys/class/net/lo/mtu").read_text())}
        with thrift_server([answer[:50]]) as (port, _), pytest.raises(DeviceError, match="cannot be read"):
            port_mtus(f"unix:{tmp_path / 'p4runtime'}", port)
    assert port_mtus("192.0.2.1", 9090) == {}, "nobody tells it of another machine"
