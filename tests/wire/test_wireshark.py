"""The dissector in tshark: every field as it was sent, a note for what is malformed, never a Lua error."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet
from scapy.utils import RawPcapWriter

from bmv2_tests.layers import Agent, Hop, SourceRoute
from mltswitch import wire
from mltswitch.wire.fields import Header
from mltswitch.wire.headers import (
    ACKNOWLEDGEMENT,
    AGENT,
    AGENT_PORT,
    AGENT_VERSION,
    ELEMENT_BYTES,
    HEADERS,
    MESSAGE,
    PIECE,
    SOURCE_ROUTE_VERSION,
)
from mltswitch.wire.wireshark import PREFIXES, dissector_text
from tests.wire.test_agent import ZERO, any_header, any_route
from tests.wire.test_layers import ETHERNET, routed
from tests.wire.test_tables import PAGE

ETHERNET_LINK = 1
SENDER_PORT = 40_000
FIELDS = [f"{PREFIXES[header.name]}.{field.name}" for header in HEADERS for field in header.fields]
FLAGS = [f"mlt_agent.flags.{flag.name}" for flag in AGENT.field("flags").flags]
REQUIRED = "mlt_agent.message.flags.required"
MADE = [
    "mlt_route.hops",
    "mlt_agent.payload",
    "mlt_agent.elements",
    "mlt_agent.message.body",
    "mlt_agent.tag",
]
MALFORMED = ["mlt_route.short", "mlt_route.endless", "mlt_agent.short", "mlt_agent.uneven"]
NOTES = [
    *MALFORMED,
    "mlt_route.cut",
    "mlt_route.unknown_version",
    "mlt_agent.cut",
    "mlt_agent.unknown_version",
]
LUA_ERROR = "_ws.lua.error"
OTHERS = ["vlan.id", "ip.ttl", "ipv6.hlim", "udp.dstport", "data.data", LUA_ERROR]
STARTS = [
    b"",
    b"\x01",
    b"\x02",
    b"\x02\x04",
    b"\x02\x05" + bytes(58),
    b"\x01\x00\x08\x00\x80\x01\x45",
    b"\x01\x00\x86\xdd\x80\x01\x60",
]
"""Nothing, versions, a control packet, a selective acknowledgement, whole routes and a byte of IP."""
BOOLEANS = {"True": "1", "False": "0"}
"""As newer releases print them."""

Shown = dict[str, list[str]]
"""Field → what one packet has of it; fields that the packet lacks are missing."""

few = settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
"""Each example is a run of tshark on many packets, too slow to look for a smaller one."""
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def tshark(
    frames: Sequence[bytes | tuple[bytes, int]], *options: str, script: str | None = None
) -> list[Shown]:
    """Dissect frames, each with its length on the wire where the capture cut it."""
    names = [*FIELDS, *FLAGS, REQUIRED, *MADE, *NOTES, *OTHERS]
    with TemporaryDirectory() as folder:
        lua, capture = Path(folder, "mltswitch.lua"), Path(folder, "capture.pcap")
        lua.write_text(script or dissector_text(), encoding="utf-8")
        with RawPcapWriter(str(capture), linktype=ETHERNET_LINK) as writer:
            writer.write_header(None)
            for frame in frames:
                data, wire_bytes = frame if isinstance(frame, tuple) else (frame, len(frame))
                writer.write_packet(data, wirelen=wire_bytes)
        asked = [part for name in names for part in ("-e", name)]
        done = subprocess.run(
            ["tshark", "-X", f"lua_script:{lua}", "-r", capture, *options, "-T", "fields", *asked],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"HOME": folder},  # no preferences or plug-ins of whoever runs this
        )
    assert done.returncode == 0, done.stderr
    assert "lua" not in done.stderr.lower()
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return [
        {
            name: [BOOLEANS.get(value, value) for value in text.split(",")]
            for name, text in zip(names, line, strict=True)
            if text
        }
        for line in lines
    ]


def numbers(shown: Shown, name: str) -> list[int]:
    return [int(value, 0) for value in shown.get(name, [])]


def agent_frame(payload: bytes, port: int = AGENT_PORT) -> bytes:
    return bytes(ETHERNET / IP(dst="10.0.0.1", src="10.0.0.2") / UDP(sport=SENDER_PORT, dport=port) / payload)


def any_numbers(header: Header) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(st.integers(0, field.maximum) for field in header.fields))


any_message = st.tuples(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=9))
"""Type, flags, body."""


@st.composite
def sent(draw: st.DrawFn) -> tuple[bytes, Shown]:
    """A frame, and what must be shown of it."""
    header = draw(any_header)._replace(
        kind=draw(st.sampled_from([1, 1, 1, 2, 3, 4, 5, 77])), element_type=draw(st.integers(0, 11))
    )
    is_data, is_authenticated = header.kind == 1, bool(header.flags & 8)
    size = {int(entry): size for entry, size in ELEMENT_BYTES.items()}.get(header.element_type)
    messages = draw(st.lists(any_message, max_size=3)) if header.kind == 4 else []
    payload = draw(st.binary(max_size=5)) * (size or 1)
    spoken: list[tuple[Header, tuple[int, ...]]] = []
    if header.kind in {2, 5}:
        pieces = draw(st.lists(any_numbers(PIECE), max_size=3)) if header.kind == 5 else []
        spoken = [
            (ACKNOWLEDGEMENT, draw(any_numbers(ACKNOWLEDGEMENT))),
            *((PIECE, piece) for piece in pieces),
        ]
        payload = b"".join(each.encode(fields) for each, fields in spoken)
    elif header.kind == 4:
        payload = b"".join(MESSAGE.encode((kind, flags, len(body))) + body for kind, flags, body in messages)
    tag = draw(st.binary(min_size=16, max_size=16)) if is_authenticated else b""
    shown = {f"mlt_agent.{name}": [str(number)] for name, number in header._asdict().items()}
    shown |= {"mlt_agent.version": [str(AGENT_VERSION)], "udp.dstport": [str(AGENT_PORT)]}
    shown |= {name: [str(header.flags >> bit & 1)] for bit, name in enumerate(FLAGS)}
    if is_data:
        shown |= {"mlt_agent.payload": [payload.hex()]} if payload else {}
        shown |= {"mlt_agent.tag": [tag.hex()]} if tag else {}
        shown |= {"mlt_agent.elements": [str(len(payload) // size)]} if size else {}
    elif spoken:
        shown |= {"mlt_agent.tag": [tag.hex()]} if tag else {}
        for each, fields in spoken:
            for field, value in zip(each.fields, fields, strict=True):
                shown.setdefault(f"{PREFIXES[each.name]}.{field.name}", []).append(str(value))
    elif header.kind == 4:
        shown |= {"mlt_agent.tag": [tag.hex()]} if tag else {}
        if messages:
            shown["mlt_agent.message.type"] = [str(kind) for kind, _, _ in messages]
            shown["mlt_agent.message.flags"] = [str(flags) for _, flags, _ in messages]
            shown[REQUIRED] = [str(flags & 1) for _, flags, _ in messages]
            shown["mlt_agent.message.length"] = [str(len(body)) for _, _, body in messages]
        if bodies := [body.hex() for _, _, body in messages if body]:
            shown["mlt_agent.message.body"] = bodies
    elif payload + tag:
        shown["data.data"] = [(payload + tag).hex()]

    route = draw(st.none() | any_route)
    is_ipv6 = draw(st.booleans()) if route is None else route.ether_type == wire.ETHERTYPE_IPV6
    shown |= {"ipv6.hlim": ["64"]} if is_ipv6 else {"ip.ttl": ["64"]}
    address = IPv6(src="fd00::2", dst="fd00::1") if is_ipv6 else IP(src="10.0.0.2", dst="10.0.0.1")
    packet: Packet = address / UDP(sport=SENDER_PORT, dport=AGENT_PORT) / (header.encode() + payload + tag)
    if route is not None:
        packet = routed(route, packet)
        final = len(route.ports) - 1
        shown |= {
            "mlt_route.version": [str(SOURCE_ROUTE_VERSION)],
            "mlt_route.reserved": ["0"],
            "mlt_route.ether_type": [str(route.ether_type)],
            "mlt_route.hop.last": [str(int(place == final)) for place in range(final + 1)],
            "mlt_route.hop.port": [str(port) for port in route.ports],
            "mlt_route.hops": [str(final + 1)],
        }
    vlan = draw(st.none() | st.integers(1, 4094))
    if vlan is not None:
        shown["vlan.id"] = [str(vlan)]
        packet = Dot1Q(vlan=vlan) / packet
    return bytes(ETHERNET / packet), shown


@needs_tshark
@few
@given(st.lists(sent(), min_size=20, max_size=40))
def test_every_field_is_shown_as_it_was_sent(cases: list[tuple[bytes, Shown]]) -> None:
    for found, (_, expected) in zip(tshark([frame for frame, _ in cases]), cases, strict=True):
        assert found.keys() == expected.keys()
        for name, texts in expected.items():
            if name in {"mlt_agent.payload", "mlt_agent.message.body", "mlt_agent.tag", "data.data"}:
                assert [text.replace(":", "") for text in found[name]] == texts
            else:
                assert numbers(found, name) == [int(text) for text in texts], name


def full_frame() -> tuple[bytes, int, int]:
    """A tagged and routed frame; where its route begins and where its agent header does."""
    agent = Agent(flags=8) / (b"abcd" * 3 + b"T" * 16)
    packet = IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=SENDER_PORT, dport=AGENT_PORT) / agent
    frame = bytes(ETHERNET / Dot1Q(vlan=5) / SourceRoute() / Hop(port=3) / Hop(port=1) / packet)
    return frame, 18, len(frame) - len(agent)


@needs_tshark
def test_a_frame_that_ends_early_is_malformed() -> None:
    frame, route, _ = full_frame()
    ends = range(route + 1, len(frame))
    shown = tshark([frame[:end] for end in ends])
    for end, found in zip(ends, shown, strict=True):
        assert LUA_ERROR not in found, end
        assert ("mlt_route.short" in found) == (end < route + 8)
    assert numbers(shown[route + 7 - ends[0]], "mlt_route.hop.port") == [3]


@needs_tshark
def test_a_payload_that_ends_early_is_malformed() -> None:
    header = Agent(flags=8).build()
    sizes = range(1, AGENT.size_bytes + wire.AUTHENTICATION_TAG_BYTES)
    for size, found in zip(
        sizes, tshark([agent_frame((header + bytes(16))[:size]) for size in sizes]), strict=True
    ):
        assert "mlt_agent.short" in found
        assert LUA_ERROR not in found
        assert ("mlt_agent.tensor" in found) == (size >= AGENT.size_bytes)


@needs_tshark
def test_what_a_capture_cut_is_not_malformed() -> None:
    frame, route, agent = full_frame()
    ends = range(route + 1, len(frame))
    for end, found in zip(ends, tshark([(frame[:end], len(frame)) for end in ends]), strict=True):
        assert not {LUA_ERROR, *MALFORMED} & found.keys(), end
        assert ("mlt_route.cut" in found) == (end < route + 8)
        assert ("mlt_agent.cut" in found) == (end > agent), end
        assert ("mlt_agent.tensor" in found) == (end >= agent + AGENT.size_bytes)
        assert "mlt_agent.elements" not in found


@needs_tshark
def test_what_else_is_wrong_has_its_note() -> None:
    hops = b"\x00\x01"
    cases = {
        bytes(ETHERNET / SourceRoute(ether_type=0x800)) + hops * 9: "mlt_route.endless",
        bytes(ETHERNET / SourceRoute(version=2) / Hop() / b"abc"): "mlt_route.unknown_version",
        agent_frame(bytes(Agent(version=1))): "mlt_agent.unknown_version",
        agent_frame(b"\x02"): "mlt_agent.short",
        agent_frame(bytes(Agent(kind=4)) + b"\x07\x00\x00\x03ab"): "mlt_agent.short",
        agent_frame(bytes(Agent(kind=2)) + bytes(19)): "mlt_agent.short",
        agent_frame(bytes(Agent(kind=5)) + bytes(20 + 28 + 27)): "mlt_agent.short",
        agent_frame(bytes(Agent()) + b"abcde"): "mlt_agent.uneven",
        agent_frame(bytes(Agent(flags=8)) + b"a" + bytes(16)): "mlt_agent.uneven",
    }
    shown = tshark(list(cases))
    assert [[name for name in NOTES if name in found] for found in shown] == [[n] for n in cases.values()]
    assert len(numbers(shown[0], "mlt_route.hop.port")) == wire.SOURCE_ROUTE_MAXIMUM_HOPS
    for found in shown[1:3]:
        assert not [name for name in FIELDS if name in found and not name.endswith(".version")]


@needs_tshark
def test_a_packet_of_another_kind_behind_the_route() -> None:
    [found] = tshark([bytes(ETHERNET / SourceRoute(ether_type=0x1234) / Hop(port=5) / b"abc")])
    assert numbers(found, "mlt_route.hop.port") == [5]
    assert found["data.data"] == [b"abc".hex()]


@needs_tshark
@few
@given(st.lists(st.tuples(st.sampled_from(STARTS), st.binary(max_size=70)), min_size=40, max_size=80))
def test_bytes_from_anybody(blobs: list[tuple[bytes, bytes]]) -> None:
    link = bytes(Ether(src=ETHERNET.src, dst=ETHERNET.dst, type=0x88B5))
    texts = [start + rest for start, rest in blobs]
    frames = [frame for text in texts for frame in (link + text, agent_frame(text))]
    shown = tshark(frames)
    assert len(shown) == len(frames)
    assert not [frame for frame, found in zip(frames, shown, strict=True) if LUA_ERROR in found]


@needs_tshark
def test_a_lua_error_would_be_seen() -> None:
    start = "\nlocal function add_data(tree, buffer, pinfo)\n"
    faulty = dissector_text().replace(start, f"{start}  buffer(9999, 1)\n")
    assert faulty != dissector_text()
    assert LUA_ERROR in tshark([agent_frame(ZERO._replace(kind=1).encode())], script=faulty)[0]


@needs_tshark
def test_another_port() -> None:
    frames = [agent_frame(ZERO.encode(), port) for port in (AGENT_PORT, 9999)]

    def decoded(*options: str) -> list[bool]:
        return ["mlt_agent.kind" in found for found in tshark(frames, *options)]

    assert decoded() == [True, False]
    assert decoded("-o", "mlt_agent.port:9999") == [False, True]
    assert decoded("-o", "mlt_agent.port:0") == [False, False]


@needs_tshark
def test_the_filters_of_the_page() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Wireshark")[2]
    filters = [text.replace(r"\|", "|") for text in re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE)]
    assert len(filters) == 6
    frame, _, _ = full_frame()
    assert len(tshark([frame], "-Y", filters[0])) == 1
    assert tshark([frame], "-Y", " || ".join(f"({text})" for text in filters[1:])) == []
