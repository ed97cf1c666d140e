"""Captures of every kind that a tool writes, and files that are none."""

import struct
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.traffic import records
from mltswitch.traffic.capture import read_capture
from mltswitch.traffic.fit import FitSettings
from mltswitch.traffic.sources import fit_traffic
from tests.traffic.captures import block, interface, option, packet, section

V4: Any = dpkt.ip.IP(src=b"\x0a\0\0\1", dst=b"\x0a\0\0\2", p=17, tos=10 << 2 | 2, data=bytes(100))
V4.len = len(V4)
V6: Any = dpkt.ip6.IP6(
    src=bytes(15) + b"\1", dst=bytes(15) + b"\2", nxt=17, plen=100, fc=46 << 2 | 1, data=bytes(100)
)


def ethernet(packet_: Any, ether_type: int, tags: bytes = b"") -> bytes:
    return bytes(12) + tags + struct.pack(">H", ether_type) + bytes(packet_)


def dpkt_written(file: Path, frames: list[bytes], link_type: int = 1, **kind: Any) -> Path:
    with file.open("wb") as stream:
        writer = dpkt.pcap.Writer(stream, linktype=link_type, **kind)
        for number, frame in enumerate(frames):
            writer.writepkt(frame, ts=1000 + number * 0.001)
    return file


FRAMES = {
    "ethernet": (1, ethernet(V4, 0x0800), ethernet(V6, 0x86DD)),
    "vlan": (1, ethernet(V4, 0x0800, b"\x81\0\0\5"), ethernet(V6, 0x86DD, b"\x88\xa8\0\5\x81\0\0\6")),
    "sll": (113, bytes(14) + b"\x08\x00" + bytes(V4), bytes(14) + b"\x86\xdd" + bytes(V6)),
    "sll2": (276, b"\x08\x00" + bytes(18) + bytes(V4), b"\x86\xdd" + bytes(18) + bytes(V6)),
    "raw": (101, bytes(V4), bytes(V6)),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("nano", [False, True])
def test_link_types(tmp_path: Path, kind: str, nano: bool) -> None:
    link_type, four, six = FRAMES[kind]
    found = read_capture(dpkt_written(tmp_path / "capture", [four, six, four], link_type, nano=nano))
    assert found.traffic_class_bytes.tolist() == [10 << 2 | 2, 46 << 2 | 1, 10 << 2 | 2]
    tags = [4, 8, 4] if kind == "vlan" else [0, 0, 0]
    assert (found.sizes_bytes - tags).tolist() == [14 + len(V4), 14 + len(V6), 14 + len(V4)]
    assert found.senders[0] == found.senders[2] != found.senders[1]
    assert np.allclose(np.diff(found.times_nanoseconds), 1e6, atol=2000)


def test_other_frames_are_counted_apart(tmp_path: Path) -> None:
    arp = ethernet(bytes(40), 0x0806)
    cut = ethernet(V4, 0x0800)[:20]
    good = ethernet(V4, 0x0800)
    found = read_capture(dpkt_written(tmp_path / "capture", [arp, good, cut, b"", good]))
    assert (len(found.senders), found.other_frames) == (2, 3)


def test_packets_that_were_cut_have_their_own_length(tmp_path: Path) -> None:
    frame = ethernet(V4, 0x0800)[:40]
    content = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 40, 1)
    for number in range(3):
        content += struct.pack(">IIII", 100, number * 10, len(frame), 1514) + frame
    file = tmp_path / "capture"
    file.write_bytes(content)
    found = read_capture(file)
    assert found.sizes_bytes.tolist() == [1514] * 3
    assert np.diff(found.times_nanoseconds).tolist() == [10_000] * 2
    assert found.tick_nanoseconds == 10_000


@pytest.mark.parametrize(
    ("options", "units", "nanoseconds"),
    [
        (b"", 1_700_000_000_000_001, 1_700_000_000_000_001_000),
        (option(9, b"\x09"), 1_700_000_000_000_000_001, 1_700_000_000_000_000_001),
        (option(9, b"\x00"), 1_700_000_000, 1_700_000_000_000_000_000),
        (option(9, b"\x8a"), 5 * 1024 + 512, 5_500_000_000),
        (option(9, b"\xbe"), 3 * 2**62 // 4, 750_000_000),
        (option(9, b"\x0c"), 7_000_000_002_000, 7_000_000_002),
        (option(2, b"eth0") + option(14, struct.pack("<q", 90)) + option(0, b""), 1, 90_000_001_000),
    ],
)
def test_clocks_of_pcapng(tmp_path: Path, options: bytes, units: int, nanoseconds: int) -> None:
    frame = ethernet(V4, 0x0800)
    file = tmp_path / "capture"
    later = units + max(1, units // 4)
    content = section() + interface(1, options) + block(5, bytes(8)) + packet(units, frame, original=1514)
    file.write_bytes(content + packet(later, frame))
    found = read_capture(file)
    assert found.times_nanoseconds[0] == nanoseconds
    assert found.sizes_bytes.tolist() == [1514, len(frame)]


def test_sections_and_interfaces_of_pcapng(tmp_path: Path) -> None:
    file = tmp_path / "capture"
    four, six = ethernet(V4, 0x0800), bytes(V6)
    file.write_bytes(
        section("<") + interface(1) + interface(101) + packet(1, four) + packet(2, six, 1)
        + section(">") + interface(101, order=">") + packet(3, six, 0, ">")
    )  # fmt: skip
    found = read_capture(file)
    assert (found.traffic_class_bytes >> 2).tolist() == [10, 46, 46]
    assert found.interfaces == 3


def test_pieces_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = dpkt_written(tmp_path / "a", [ethernet(V4, 0x0800)] * 300)
    ng = tmp_path / "b"
    ng.write_bytes(section() + interface() + b"".join(packet(n, ethernet(V6, 0x86DD)) for n in range(300)))
    whole = [read_capture(each).times_nanoseconds.tolist() for each in (file, ng)]
    monkeypatch.setattr(records, "PIECE_BYTES", 97)
    read: list[int] = []
    assert [read_capture(each, read.append).times_nanoseconds.tolist() for each in (file, ng)] == whole
    assert read[-1] == ng.stat().st_size


def capture_of(times: list[int], frame: bytes = ethernet(V4, 0x0800)) -> bytes:
    content = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return content + b"".join(
        struct.pack("<IIII", *divmod(time, 10**6), len(frame), len(frame)) + frame for time in times
    )


GOOD = capture_of([1, 5, 9])
GOOD_NG = section() + interface() + packet(1, ethernet(V4, 0x0800)) + packet(7, ethernet(V4, 0x0800))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is empty"),
        (b"hello\n", "neither a capture nor queue counters"),
        (b"\x1f\x8b\x08\0", "is compressed"),
        (GOOD[:10], "ends inside the file header"),
        (GOOD[:24], "holds no packets"),
        (GOOD[:-5], "ends inside packet 3"),
        (GOOD[:30], "ends inside packet 1"),
        (GOOD_NG[:-5], "ends inside the block after packet 1"),
        (capture_of([1]), "holds one packet only"),
        (capture_of([0, 0, 0]), "has no timestamps"),
        (capture_of([77, 77]), "has no timestamps"),
        (capture_of([5_000_000, 1]), "time runs back by 5 s at IP packet 2"),
        (capture_of([1, 2], ethernet(bytes(20), 0x0806)), "holds no IP packet, and 2 other frames"),
        (GOOD[:20] + b"\x69\0\0\0" + GOOD[24:], "frames of link type 105 cannot be read"),
        (GOOD[:28] + b"\xff\xff\xff\x7f" + GOOD[32:], "has a time whose fraction is more than a second"),
        (GOOD[:32] + b"\xff\xff\xff\x7f" + GOOD[36:], "packet 1 says it has 2147483647 bytes"),
        (section() + packet(1, bytes(60)), "of an interface that nothing describes"),
        (section() + interface() + block(3, bytes(8)), "packet blocks without a time"),
        (section() + interface() + block(6, bytes(8)), "is shorter than its packet"),
        (section() + interface(1, option(9, b"\x7f")), "impossible clock resolution"),
        (section() + interface(1, option(9, b"\0")) + packet(2**40, bytes(60)), "outside the years"),
        (section() + b"\1\0\0\0\5\0\0\0" + bytes(8), "says it has 5 bytes"),
    ],
)
def test_what_is_no_capture(tmp_path: Path, content: bytes, line: str) -> None:
    file = tmp_path / "capture"
    file.write_bytes(content)
    with pytest.raises(UserInputError) as refusal:
        fit_traffic(file, FitSettings(rate_bps=10**10))
    assert line in str(refusal.value)
    assert str(refusal.value).startswith(str(file))


def test_what_is_no_file(tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserInputError):
            fit_traffic(file, FitSettings(rate_bps=10**10))


def test_packets_slightly_out_of_order_are_sorted(tmp_path: Path) -> None:
    file = tmp_path / "capture"
    file.write_bytes(capture_of([10, 40, 30, 50]))
    found = read_capture(file)
    assert (np.diff(found.times_nanoseconds) > 0).all()
    assert found.reordered_packets == 1


BEGINNINGS = [
    b"", GOOD[:24], GOOD, GOOD_NG, section(), section() + interface(), section(">"),
    b"time_seconds,class,packets\n",
    b'{"time_seconds": 1, "class": "a", "packets": 1}\n',
]  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    beginning=st.sampled_from(BEGINNINGS),
    rest=st.binary(max_size=200) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")),
    changes=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=4),
)
@example(beginning=GOOD, rest=b"", changes=[(40, 255), (41, 255)])
@example(beginning=b"", rest=b"{" * 4000, changes=[])
def test_any_bytes_are_a_fit_or_one_line(
    tmp_path: Path, beginning: bytes, rest: bytes, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(beginning + rest)
    for place, value in changes:
        if place < len(content):
            content[place] = value
    file = tmp_path / "capture"
    file.write_bytes(content)
    try:
        made = fit_traffic(file, FitSettings(rate_bps=10**10))
    except UserInputError as error:
        line = str(error)
        assert line.startswith(str(file))
        assert "\n" not in line
    else:
        assert sum(entry.packets for entry in made.classes) == made.source.packets
