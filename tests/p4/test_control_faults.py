"""Faults of a P4Runtime server: each ends in one clear line, in time, and prints nothing."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2
from p4.v1 import p4runtime_pb2

from mltswitch.errors import DeviceError, MachineError, UserInputError
from mltswitch.p4.control import open_switch
from mltswitch.p4.program import Program
from mltswitch.p4.switch import BATCH_LINES, PacketIn
from tests.p4.servers import ObedientServer, SilentServer, serving

LINE = "table_add groups forward 1 => 2 3"


@pytest.fixture(autouse=True)
def prints_nothing(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")


def refused(address: str, program: Program, lines: list[str]) -> str:
    """What a write is answered with."""
    with open_switch(address, device_id=1, timeout_seconds=30) as switch:
        switch.load(program)
        with pytest.raises(DeviceError) as raised:
            switch.write(lines)
    assert raised.value.where == address
    return str(raised.value)


def test_a_switch_that_accepts_and_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    server = SilentServer()
    with serving(server, tmp_path) as address:
        with (
            pytest.raises(DeviceError, match=r"has not answered within 0\.2 s"),
            open_switch(address, device_id=1, timeout_seconds=0.2),
        ):
            pass
        with (
            open_switch(address, device_id=1, primary=False, timeout_seconds=0.2) as switch,
            pytest.raises(DeviceError, match=r"has not answered within 0\.2 s"),
        ):
            switch.cookie()
        server.end.set()


def test_a_server_that_hangs_up_during_arbitration(tmp_path: Path) -> None:
    server = SilentServer()
    server.end.set()
    with (
        serving(server, tmp_path) as address,
        pytest.raises(DeviceError, match="ended the session at its beginning"),
        open_switch(address, device_id=1, timeout_seconds=30),
    ):
        pass


def test_something_that_is_no_grpc_server(tmp_path: Path) -> None:
    path = tmp_path / "p4runtime"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with (
            open_switch(f"unix:{path}", device_id=1, primary=False, timeout_seconds=0.2) as switch,
            pytest.raises(DeviceError, match=r"has not answered|cannot be reached"),
        ):
            switch.cookie()


def test_a_grpc_server_that_speaks_no_p4runtime(tmp_path: Path) -> None:
    with (
        serving(ObedientServer(), tmp_path) as address,
        open_switch(address, device_id=1, primary=False, timeout_seconds=30) as switch,
        pytest.raises(DeviceError, match="does not know how to answer"),
    ):
        switch.cookie()


def test_packets_go_out_and_come_in_with_their_headers(tmp_path: Path) -> None:
    """The server sends a packet back with its port, and with a reason of its own."""
    with serving(ObedientServer(), tmp_path) as address, open_switch(address, device_id=1) as switch:
        switch.packet_out(b"frame", 300)
        deadline = time.monotonic() + 60
        while not (found := switch.packets_in()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert found == (PacketIn(b"frame", 300, 5),)


class RefusesBatches(ObedientServer):
    """Fails every write with the given details, or without any."""

    def __init__(self, codes: list[int] | None = None) -> None:
        self.codes = codes
        self.writes = 0

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        self.writes += 1
        if self.codes is not None:
            status = status_pb2.Status(code=code_pb2.UNKNOWN)
            for code in self.codes:
                detail = any_pb2.Any()
                detail.Pack(p4runtime_pb2.Error(canonical_code=code, message="" if code == 0 else "too hot"))
                status.details.append(detail)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.UNKNOWN, "it does\nnot want to")


def test_a_batch_refused_without_a_word_on_its_lines(tmp_path: Path, program: Program) -> None:
    server = RefusesBatches()
    with serving(server, tmp_path) as address:
        said = refused(address, program, [LINE] * 3 * BATCH_LINES)
    assert "refuses a write: UNKNOWN: it does not want to" in said
    assert server.writes == 1


def test_details_of_another_number_of_lines_are_not_believed(tmp_path: Path, program: Program) -> None:
    with serving(RefusesBatches([code_pb2.OK, code_pb2.ABORTED]), tmp_path) as address:
        assert "refuses a write: UNKNOWN" in refused(address, program, [LINE])


def test_the_first_of_several_refused_lines_is_named(tmp_path: Path, program: Program) -> None:
    codes = [code_pb2.OK, code_pb2.OK, code_pb2.ABORTED, code_pb2.OK, 99]
    with serving(RefusesBatches(codes), tmp_path) as address:
        said = refused(address, program, [LINE] * 5)
    assert f"refuses line 3 of 5, {LINE!r}: too hot (ABORTED); 3 of 5 lines took effect" in said


def test_an_unknown_code_is_shown_as_its_number(tmp_path: Path, program: Program) -> None:
    with serving(RefusesBatches([99]), tmp_path) as address:
        assert "too hot (99); 0 of 1 lines took effect" in refused(address, program, [LINE])


class FailsLater(ObedientServer):
    """Takes one batch and crashes at the second."""

    writes = 0

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        self.writes += 1
        if self.writes > 1:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no memory")
        return p4runtime_pb2.WriteResponse()


def test_what_took_effect_before_is_said(tmp_path: Path, program: Program) -> None:
    with serving(FailsLater(), tmp_path) as address:
        said = refused(address, program, [LINE] * (BATCH_LINES + 1))
    assert "RESOURCE_EXHAUSTED: no memory" in said
    assert f"the first {BATCH_LINES} of {BATCH_LINES + 1} lines took effect" in said


class ReturnsStrangers(ObedientServer):
    """Has an entry of a table that the program does not have, and forgets all counters."""

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802  (gRPC's name)
        response = p4runtime_pb2.ReadResponse()
        if request.entities[0].HasField("table_entry"):
            response.entities.add().table_entry.table_id = 77
        yield response


def test_answers_that_fit_no_question(tmp_path: Path, program: Program) -> None:
    with (
        serving(ReturnsStrangers(), tmp_path) as address,
        open_switch(address, device_id=1, timeout_seconds=30) as switch,
    ):
        switch.load(program)
        with pytest.raises(DeviceError, match="the table 77") as raised:
            switch.entries()
        assert raised.value.where == address
        with pytest.raises(DeviceError, match="did not return all counters"):
            switch.refusals()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "leaf1",
        "leaf1:",
        "leaf1:p4",
        "leaf1:0",
        "leaf1:65536",
        "leaf1:99999",
        "::1:9559",
        "http://leaf1:9559",
        "leaf 1:9559",
        "unix:",
        "unix:relative",
        "unix:/" + "a" * 107,
    ],
)
def test_what_is_no_address_is_not_tried(address: str) -> None:
    with (
        pytest.raises(UserInputError, match="is no address of a P4Runtime server"),
        open_switch(address, device_id=1),
    ):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/" + "a" * 106])
def test_an_address_where_nobody_listens(address: str) -> None:
    for primary in (True, False):
        with (
            pytest.raises(DeviceError, match="cannot be reached") as raised,
            open_switch(address, device_id=1, primary=primary, timeout_seconds=30) as switch,
        ):
            switch.cookie()
        assert raised.value.where == address


def test_without_p4runtime_shell_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "mltswitch.p4.switch", raising=False)
    monkeypatch.setitem(sys.modules, "p4runtime_sh.p4runtime", None)
    with (
        pytest.raises(MachineError, match=r"p4runtime-shell.*pip install 'mltswitch\[p4\]'"),
        open_switch("unix:/nowhere", device_id=1),
    ):
        pass
