"""Sockets that receive what was meant for them, and say how large their buffers are."""

import select
import socket
from ipaddress import IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.destinations import attach_destination_filter, destination_filter
from mltswitch.hostagent.network.sockets import (
    BufferSize,
    open_path_sockets,
    open_socket,
    segment_header,
    send_space_bytes,
    set_segments,
    socket_address,
)
from tests.hostagent.network.bursts import nothing_waits

LOOPBACK = st.integers(1, 254).map(lambda number: f"127.0.0.{number}")


def send(address: str, port: int, payload: bytes = b"x") -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.sendto(payload, (address, port))


@settings(max_examples=20)
@given(st.lists(LOOPBACK, min_size=2, max_size=64, unique=True), LOOPBACK)
def test_only_what_was_sent_to_its_addresses_comes(addresses: list[str], other: str) -> None:
    opened = open_socket(addresses, 0)
    try:
        send(other, opened.port, b"other")
        send(addresses[-1], opened.port, b"own")
        select.select([opened.socket], [], [], 5)
        first = opened.socket.recv(10)
        assert first == (b"other" if other in addresses else b"own")
        assert other in addresses or nothing_waits(opened.socket)
    finally:
        opened.socket.close()


def test_ipv6_addresses_are_compared_as_a_whole() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as opened:
        attach_destination_filter(opened, ["2001:db8::1", "::2"])
        opened.bind(("::", 0))
        send("::1", opened.getsockname()[1])
        assert nothing_waits(opened)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as opened:
        attach_destination_filter(opened, ["2001:db8::1", "::1"])
        opened.bind(("::", 0))
        send("::1", opened.getsockname()[1])
        assert opened.recv(10) == b"x"


def test_one_address_needs_no_filter() -> None:
    opened = open_socket(("127.0.0.5",), 0)
    assert opened.socket.getsockname() == ("127.0.0.5", opened.port)
    send("127.0.0.6", opened.port)
    assert nothing_waits(opened.socket)


def test_neither_fragments_nor_waits() -> None:
    opened = open_socket(("127.0.0.1",), 0).socket
    assert opened.getsockopt(socket.IPPROTO_IP, libc.IP_MTU_DISCOVER) == libc.IP_PMTUDISC_PROBE
    assert not opened.getblocking()
    opened = open_socket(("::1",), 0).socket
    assert opened.getsockopt(socket.IPPROTO_IPV6, libc.IPV6_MTU_DISCOVER) == libc.IP_PMTUDISC_PROBE


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        (["192.0.2.1"], r"192\.0\.2\.1: UDP port 0 cannot be opened: Cannot assign"),
        (["127.0.0.1", "192.0.2.1"], r"192\.0\.2\.1: UDP port 0 cannot be opened: Cannot assign"),
        (["127.0.0.1", "::1"], "all IPv4 or all IPv6"),
        ([], "no address"),
        (["leaf1"], "local address: 'leaf1'"),
        ([f"127.0.1.{number}" for number in range(65)], "expected 1-64"),
    ],
)
def test_addresses_that_will_not_do(addresses: list[str], message: str) -> None:
    with pytest.raises(UserInputError, match=message):
        open_socket(addresses, 0)


def test_a_port_that_is_taken() -> None:
    first = open_socket(("127.0.0.1",), 0)
    with pytest.raises(MachineError, match=f"UDP port {first.port} cannot be opened: Address already in use"):
        open_socket(("127.0.0.1",), first.port)
    with pytest.raises(MachineError, match="Address already in use"):
        open_path_sockets(["127.0.0.1"] * 2, [0, first.port])


def test_each_path_has_a_port_of_its_own() -> None:
    opened = open_path_sockets(["127.0.0.1"] * 4, [0, 0, 0, 0])
    assert len({entry.port for entry in opened}) == 4


def test_a_buffer_as_wanted_is_no_warning() -> None:
    opened = open_socket(("127.0.0.1",), 0, receive_buffer_bytes=65_536, send_buffer_bytes=65_536)
    assert opened.receive_buffer.granted_bytes == 65_536
    assert opened.warnings == ()


def test_a_buffer_that_is_too_small_says_how_to_raise_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "SO_RCVBUFFORCE", socket.SO_RCVBUF)  # as without the privilege
    opened = open_socket(("127.0.0.1",), 0, receive_buffer_bytes=1 << 30, send_buffer_bytes=65_536)
    (warning,) = opened.warnings
    assert f"instead of {1 << 30}" in warning
    assert f"sysctl -w net.core.rmem_max={1 << 30}" in warning


def test_the_warning_is_about_what_is_missing() -> None:
    assert not BufferSize(100, 100, "net.core.rmem_max").warning
    assert "gives 99 bytes" in BufferSize(100, 99, "net.core.rmem_max").warning


@pytest.mark.parametrize("payload_bytes", [64, 1472, 4000, 8972, 60_000])
def test_as_many_datagrams_fit_as_a_buffer_says(payload_bytes: int) -> None:
    opened = open_socket(("127.0.0.1",), 0, receive_buffer_bytes=1 << 17)
    fitting = opened.receive_buffer.datagrams(payload_bytes)
    assert fitting >= 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(fitting):
            sender.sendto(bytes(payload_bytes), ("127.0.0.1", opened.port))
    for _ in range(fitting):
        assert len(opened.socket.recv(1 << 16)) == payload_bytes


def test_space_is_what_the_socket_says() -> None:
    opened = open_socket(("127.0.0.1",), 0, send_buffer_bytes=65_536)
    assert send_space_bytes(opened.socket) == 2 * 65_536


def test_the_segment_header_is_that_of_the_rfc() -> None:
    hops = [IPv6Address("fd00:1::"), IPv6Address("fd00:2::")]
    header = segment_header(hops)
    assert header[:8] == bytes([0, 6, 4, 2, 2, 0, 0, 0])
    assert [header[at : at + 16] for at in (8, 24, 40)] == [bytes(16), hops[1].packed, hops[0].packed]
    assert len(header) == (header[1] + 1) * 8


@pytest.mark.parametrize(
    ("segments", "message"),
    [([], "0 segments"), (["fd00::1"] * 17, "17 segments"), (["10.0.0.1"], "IPv6 addresses")],
)
def test_segments_that_no_header_holds(segments: list[str], message: str) -> None:
    with pytest.raises(UserInputError, match=message):
        set_segments(open_socket(("::1",), 0).socket, segments)


def test_a_kernel_without_segment_routing_is_named() -> None:
    with pytest.raises(MachineError, match="spray mode srv6: the kernel refuses segment lists"):
        set_segments(open_socket(("127.0.0.1",), 0).socket, ["fd00::1"])  # an IPv4 socket refuses them, too


def test_addresses_as_the_kernel_reads_them() -> None:
    assert socket_address(socket.AF_INET, "10.1.2.3", 18515) == bytes.fromhex("0200 4853 0a010203") + bytes(8)
    assert len(socket_address(socket.AF_INET6, "fd00::1", 1)) == 28
    scoped = socket_address(socket.AF_INET6, "fe80::1%lo", 1)
    assert int.from_bytes(scoped[24:], "little") == socket.if_nametoindex("lo")
    with pytest.raises(ValueError, match="no address of the socket's family"):
        socket_address(socket.AF_INET, "fd00::1", 1)


def test_no_address_no_filter() -> None:
    with pytest.raises(UserInputError, match="expected 1-64"):
        destination_filter([])
