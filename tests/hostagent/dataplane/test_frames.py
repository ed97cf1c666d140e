"""Frames with a source route over a veth pair: each is byte for byte what scapy makes of our definition."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from bmv2_tests.layers import Hop, SourceRoute
from bmv2_tests.received import AgentHeader, source_route
from mltswitch import wire
from mltswitch.hostagent.dataplane.binding import (
    DataPlane,
    DataPlaneError,
    Fields,
    lib,
    path_fields,
)
from tests.hostagent.dataplane.ends import gradients
from tests.hostagent.dataplane.test_threads import exchange, options, udp_socket
from tests.hostagent.namespaces import INTERFACE, Host, can_make_namespaces, two_hosts

PORTS = ((3, 1), (3, 2, 1))
"""Of the switches on each path."""
TOS = {"tos_important": 0x4A, "tos_unimportant": 0x48}


def template(one: Host, other: Host, hops: tuple[int, ...], ports: tuple[int, int]) -> bytes:
    """As scapy makes it of a datagram without payload, lengths and checksums 0."""
    ethernet = Ether(src=one.hardware_address, dst=other.hardware_address, type=wire.ETHERTYPE_SOURCE_ROUTE)
    ip = IP(src=one.address, dst=other.address, id=0, flags="DF", ttl=64, len=0, chksum=0)
    udp = UDP(sport=ports[0], dport=ports[1], len=0, chksum=0)
    route = wire.SourceRoute(hops, wire.ETHERTYPE_IPV4).encode()
    return bytes(ethernet) + route + bytes(ip / udp)


def again(frame: bytes) -> bytes:
    """The same frame with lengths and checksum of IPv4 by scapy."""
    ethernet = Ether(frame)
    ip = ethernet[IP]
    route = ethernet[SourceRoute]
    built = Ether(src=ethernet.src, dst=ethernet.dst) / SourceRoute()
    hop = route.payload
    while isinstance(hop, Hop):
        built /= Hop(port=hop.port)
        hop = hop.payload
    head = IP(src=ip.src, dst=ip.dst, tos=ip.tos, id=0, flags="DF", ttl=64)
    udp = UDP(sport=ip[UDP].sport, dport=ip[UDP].dport, chksum=0)
    return bytes(built / head / udp / bytes(ip[UDP].payload))


@contextmanager
def last_switch(host: Host, port: int) -> Iterator[list[bytes]]:
    """Takes routes off and hands the datagrams on; yields the frames that came."""
    with host.entered():
        cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(wire.ETHERTYPE_SOURCE_ROUTE))
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    cable.bind((INTERFACE, wire.ETHERTYPE_SOURCE_ROUTE))
    cable.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    cable.settimeout(0.05)
    frames: list[bytes] = []
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            try:
                frame = cable.recv(2048)
            except TimeoutError:
                continue
            frames.append(frame)
            behind = 14 + source_route(frame[14:]).size_bytes
            out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, frame[behind + 1])
            out.sendto(frame[behind + 28 :], (host.address, port))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield frames
    finally:
        ended.set()
        thread.join(10)
        cable.close()
        out.close()


@pytest.mark.root
@pytest.mark.skipif(not can_make_namespaces(), reason="needs root")
@pytest.mark.parametrize("keys", [False, True])
def test_frames_are_those_of_the_definition(keys: bool) -> None:
    with two_hosts() as hosts, DataPlane() as sender, DataPlane() as receiver:
        one, other = hosts.one, hosts.other
        with one.entered():
            answers = udp_socket(address=one.address)
            cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            cable.bind((INTERFACE, 0))
        with other.entered():
            bound = udp_socket(address=other.address)
        ports = answers.getsockname()[1], bound.getsockname()[1]
        planes, tokens = [sender, receiver], [sender.reserve(), receiver.reserve()]
        with answers, cable, bound, last_switch(other, ports[1]) as frames:
            sender.add_socket(answers)
            number, features = sender.add_socket(cable)
            assert not features & lib.MLT_SEGMENTATION
            receiver.add_socket(bound)
            for plane in planes:
                plane.start()
            paths = [
                path_fields(
                    address=other.address,
                    port=ports[1],
                    socket=number,
                    frame=template(one, other, hops, ports),
                )
                for hops in PORTS
            ]
            size = 1500 - 28 - 10
            sender.open(tokens[0], options(tokens[1], 0, keys=keys, datagram_bytes=size), paths)
            back = [path_fields(address=one.address, port=ports[0])] * len(PORTS)
            receiver.open(tokens[1], options(tokens[0], 1, keys=keys, datagram_bytes=size), back)
            elements = 100_000
            data, target = gradients(elements), np.zeros(elements, np.float32)
            sent, received = exchange(planes, tokens, data, target, importance=lib.MLT_BY_MAGNITUDE, **TOS)
            assert np.array_equal(data, target)
            assert received.received_packets >= received.packets
            assert min(sent.by_path[0], sent.by_path[1]) > sent.packets / 4
        seen: set[int] = set()
        for frame in frames:
            assert frame == again(frame)
            route = source_route(frame[14:])
            header = AgentHeader.decode(frame[14 + route.size_bytes + 28 :])
            assert route.ports == PORTS[header.path]
            assert frame.startswith(template(one, other, route.ports, ports)[: 14 + route.size_bytes])
            if header.kind == wire.AgentKind.DATA:
                tos = frame[14 + route.size_bytes + 1]
                assert (tos == TOS["tos_important"]) == bool(header.flags & wire.AgentFlag.IMPORTANT)
                seen.add(tos)
        assert seen == set(TOS.values())
        assert 14 + 1500 - max(map(len, frames)) < 4  # whole elements


def test_frames_that_cannot_be() -> None:
    with DataPlane() as plane, udp_socket() as bound:
        plane.add_socket(bound)
        plane.start()
        flow = Fields(peer_token=1)
        fine = b"\0" * 14 + b"\x45" + b"\0" * 27
        for frame in (fine[:-1], b"\0" * 42, fine):  # cut, no IPv4, and no packet socket
            path = path_fields(address="127.0.0.1", port=1, frame=frame)
            with pytest.raises(DataPlaneError, match="invalid"):
                plane.open(plane.reserve(), flow, [path])
