"""What the kernel offers, found out by trying."""

import platform
import socket
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.network import features, libc, netlink
from mltswitch.hostagent.network.features import Egress, egress, interface_mtu_bytes, kernel_features
from mltswitch.hostagent.network.netlink import TC_H_ROOT, QueueingDiscipline, queueing_disciplines
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES


def test_this_kernel() -> None:
    found = kernel_features()
    version = tuple(int(part) for part in platform.release().split(".")[:2])
    assert found.kernel_release == platform.release()
    assert found.batching
    assert found.traffic_class
    assert found.segmentation == (version >= (4, 18))
    assert found.coalescing == (version >= (5, 0))
    assert found.drop_counts == (version >= (4, 12))
    assert found.pacing
    assert found.receive_buffer_limit_bytes == int(Path("/proc/sys/net/core/rmem_max").read_text())


def test_an_older_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "UDP_SEGMENT", 250)  # options that no kernel knows
    monkeypatch.setattr(libc, "UDP_GRO", 251)
    monkeypatch.setattr(libc, "SO_MEMINFO", 1000)
    monkeypatch.setattr(libc, "SO_TXTIME", 1001)
    monkeypatch.setattr(features, "_LIMITS", Path("/nowhere"))
    found = kernel_features()
    assert (found.segmentation, found.coalescing, found.drop_counts, found.pacing) == (False,) * 4
    assert found.traffic_class
    assert found.receive_buffer_limit_bytes is None


def test_without_coalescing_segments_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "UDP_GRO", 251)
    found = kernel_features()
    assert found.segmentation
    assert not found.coalescing


def test_the_way_to_ourselves() -> None:
    found = egress("127.0.0.1")
    assert found.interface == "lo"
    assert found.source == "127.0.0.1"
    assert found.mtu_bytes == min(65_535, int(Path("/sys/class/net/lo/mtu").read_text()))
    assert not found.kernel_paces
    assert found.payload_bytes() == UDP_MAXIMUM_PAYLOAD_BYTES


def test_the_mtu_of_an_interface() -> None:
    assert interface_mtu_bytes("lo") == int(Path("/sys/class/net/lo/mtu").read_text())
    with pytest.raises(UserInputError, match="interface no-such-one: has no MTU: No such device"):
        interface_mtu_bytes("no-such-one")


def test_no_address() -> None:
    with pytest.raises(UserInputError, match="destination: 'leaf1'"):
        egress("leaf1")


def test_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(netlink, "_ask", refuse)
    with pytest.raises(MachineError, match=r"127\.0\.0\.1: no route: Network is unreachable"):
        netlink.egress_interface(ip_address("127.0.0.1"))


def test_an_interface_that_is_not_there() -> None:
    assert queueing_disciplines(2**30) == ()


def test_an_error_of_the_kernel_is_raised() -> None:
    with pytest.raises(OSError, match="Operation not supported"):
        list(netlink._ask(4000, 0, bytes(16)))


@pytest.mark.parametrize(
    ("destination", "route_bytes", "payload_bytes"),
    [("10.0.0.1", 0, 1472), ("fd00::1", 0, 1452), ("fd00::1", 40, 1412), ("10.0.0.1", 8, 1464)],
)
def test_the_payload_is_what_headers_leave(destination: str, route_bytes: int, payload_bytes: int) -> None:
    found = Egress(destination, "10.0.0.2", "eth0", 1500, ())
    assert found.payload_bytes(route_bytes=route_bytes) == payload_bytes


def discipline(kind: str, handle: int, parent: int = TC_H_ROOT) -> QueueingDiscipline:
    return QueueingDiscipline(kind, handle << 16, parent)


@pytest.mark.parametrize(
    ("disciplines", "paces"),
    [
        ((), False),
        ((discipline("noqueue", 0),), False),
        ((discipline("fq_codel", 0x8001),), False),
        ((discipline("fq", 0x8001),), True),
        ((discipline("mq", 0x8001),), False),
        ((discipline("mq", 0x8001), discipline("fq", 0, 0x80010001), discipline("fq", 0, 0x80010002)), True),
        (
            (discipline("mq", 0x8001), discipline("fq", 0, 0x80010001), discipline("pfifo", 0, 0x80010002)),
            False,
        ),
        ((discipline("htb", 0x8001), discipline("fq", 0, 0x80010001)), False),
    ],
)
def test_the_kernel_paces_where_every_queue_is_fair(
    disciplines: tuple[QueueingDiscipline, ...], paces: bool
) -> None:
    assert Egress("10.0.0.1", "10.0.0.2", "eth0", 1500, disciplines).kernel_paces == paces


@given(st.binary(max_size=100))
def test_answers_of_any_kind_end(data: bytes) -> None:
    assert sum(len(content) for _, content in netlink._messages(data)) <= len(data)
    assert sum(map(len, netlink._attributes(data).values())) <= len(data)


@given(st.dictionaries(st.integers(1, 100), st.binary(max_size=20), max_size=5))
def test_attributes_are_read_as_they_are_written(wanted: dict[int, bytes]) -> None:
    data = b"".join(netlink._attribute(kind, content) for kind, content in wanted.items())
    assert netlink._attributes(data) == wanted


def test_the_loopback_interface_is_found() -> None:
    index = netlink.egress_interface(ip_address("127.0.0.1"))
    assert socket.if_indextoname(index) == "lo"
    assert [entry.parent for entry in queueing_disciplines(index)] == [TC_H_ROOT]
