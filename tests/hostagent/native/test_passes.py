"""The compiled passes against numpy's and Python's own ways, and when they are left unused."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent import native
from mltswitch.hostagent.doctor.findings import Status
from mltswitch.hostagent.doctor.machine import machine_findings
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.receiver import Controls, parse_controls
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.tagging.sums import PacketSums
from mltswitch.hostagent.tensor import PacketLayout, TensorView, packet_rows
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.hostagent.transport.messages import Probe, encode_message
from mltswitch.wire import AgentFlag, AgentHeader, AgentKind, Ecn, ElementType
from mltswitch.wire.headers import ACKNOWLEDGEMENT, AGENT
from tests.hostagent.doctor.pairs import settings_of
from tests.hostagent.native.passes import needs_passes, without_passes
from tests.hostagent.network.test_receiver import KEY_OF_TOS, control_areas
from tests.hostagent.tagging.tensors import any_tensors
from tests.hostagent.transport.ends import connection, incoming, talk

PAYLOAD_BYTES = 104
"""A header and 16 elements: tensors of 100 have seven packets, the last of 16 bytes."""
SIZES_BYTES = {False: 64, True: 16}
TENSORS = (3, 4)
NOW_NS = 2_000_000_000


@needs_passes
def test_they_are_in_use_where_there_is_a_compiler() -> None:
    assert native.LIBRARY is not None, native.PROBLEM


def test_the_header_lies_where_its_definition_says() -> None:
    source = Path(native.__file__).with_name("wire.h").read_text(encoding="utf-8")
    in_c = {
        name: int(number) for name, number in re.findall(r"^    ([A-Z_]+) = (\d+),", source, re.MULTILINE)
    }
    offsets = {field.name: bits // 8 for bits, field in AGENT.with_offsets()}
    behind = {field.name: AGENT.size_bytes + bits // 8 for bits, field in ACKNOWLEDGEMENT.with_offsets()}
    assert in_c == {
        "FLAGS": offsets["flags"],
        "TOKEN": offsets["flow_token"],
        "TOKEN_BYTES": 8,
        "COMMON_BYTES": native.COMMON_BYTES,
        "PATH": offsets["path"],
        "SEQUENCE": offsets["sequence"],
        "ELEMENT_OFFSET": offsets["element_offset"],
        "SENT": offsets["sent_nanoseconds"],
        "HEADER_BYTES": AGENT.size_bytes,
        "ECHOED": behind["echoed_nanoseconds"],
        "HELD": behind["held_nanoseconds"],
        "RECEIVED": behind["received_packets"],
        "MARKED": behind["marked_packets"],
        "ACKNOWLEDGEMENT_BYTES": AGENT.size_bytes + ACKNOWLEDGEMENT.size_bytes,
        "ACKNOWLEDGEMENT": AgentKind.ACKNOWLEDGEMENT,
        "LAST": AgentFlag.LAST,
        "IMPORTANT": AgentFlag.IMPORTANT,
        "ECN_MASK": Ecn.CE,
    }
    assert (
        offsets["layer"] == native.COMMON_BYTES
    )  # up to there all packets of a transfer are alike, flags apart


@st.composite
def datagram_grids(draw: st.DrawFn) -> list[DatagramGrid]:
    """Of two tensors' packets, most of them right."""
    grids = []
    for _ in range(draw(st.integers(1, 4))):
        per_message, messages = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        is_last = draw(st.booleans())
        size_bytes = draw(st.sampled_from([SIZES_BYTES[is_last]] * 6 + [0, 12, 20, 64]))
        common = draw(st.sampled_from(TENSORS))
        rows = [draw(datagrams(common, is_last, size_bytes)) for _ in range(per_message * messages)]
        memory = np.frombuffer(bytearray(b"*" * 5 + b"".join(rows)), np.uint8)
        tos = np.array(draw(st.lists(st.integers(0, 255), min_size=messages, max_size=messages)), np.uint8)
        size = len(rows[0])
        grids.append(DatagramGrid(memory, 5, messages, per_message * size, per_message, size, tos))
    return grids


@st.composite
def datagrams(draw: st.DrawFn, tensor: int, is_last: bool, size_bytes: int) -> bytes:
    def mostly(usual: int, *others: int) -> int:
        return draw(st.sampled_from([usual] * 12 + list(others)))

    sequence = mostly(6 if is_last else draw(st.integers(0, 5)), 7, 2**32 - 1)
    header = AgentHeader(
        mostly(AgentKind.DATA, AgentKind.PROBE, AgentKind.ACKNOWLEDGEMENT, 9),
        draw(st.integers(0, 3)) << 1 | sequence & AgentFlag.IMPORTANT,
        mostly(ElementType.FLOAT32, ElementType.INT8),
        mostly(2, 3),
        mostly(tensor, *TENSORS, 9),
        mostly(1, 2),
        draw(st.integers(0, 3)),
        mostly(0, 1, 2**16 - 1),
        sequence,
        mostly(sequence * 16 % 2**32, 1),
        draw(st.integers(0, NOW_NS)),
    )
    # Copies are alike: which of two that contradict each other stays is nobody's promise.
    return header.encode() + np.random.default_rng(sequence).bytes(size_bytes)


def outcome(batches: Sequence[list[DatagramGrid]], asked: int = 0) -> list[Any]:
    """All that can be seen of a connection which receives them, and is asked what has arrived of a tensor."""
    one, other = connection(1, payload_bytes=PAYLOAD_BYTES), connection(2, payload_bytes=PAYLOAD_BYTES)
    talk(one, other)
    posted = [incoming(tensor) for tensor in TENSORS]
    for each in posted:
        other.receive(each, 1)
    talk(one, other)
    seen: list[Any] = []
    for number, grids in enumerate(batches):
        now_ns = NOW_NS + 10_000_000 * number
        if asked and not number:
            other.control_received(encode_message(Probe(TransferKey(asked, 1), 1, 0)), now_ns)
        other.datagrams_received(grids, now_ns)
        other.timer(now_ns)
        ended = [repr(event) for event in other.events()]
        seen.append((other.traffic(), ended, other.datagrams_to_send(now_ns), other.control_to_send()))
        assert isinstance(other.sprayer, PathSprayer)
        seen.append((other.sprayer.unknown_paths, other.sprayer.statistics()))
        seen.append((other.next_timer_ns(), [each.tensor.data.tobytes() for each in posted]))
    return seen


@needs_passes
@given(st.lists(datagram_grids(), min_size=1, max_size=3))
def test_whatever_arrives_it_is_taken_in_alike(batches: list[list[DatagramGrid]]) -> None:
    compiled = outcome(batches)
    with without_passes():
        assert outcome(batches) == compiled


@needs_passes
@pytest.mark.parametrize("tensors", [(3, 4), (4, 3)])
def test_a_probe_waits_for_packets_as_late_as_those_of_its_tensor(tensors: tuple[int, int]) -> None:
    late_ns = {3: 20_000_000, 4: 0}
    rows = [
        AgentHeader(
            AgentKind.DATA, 0, ElementType.FLOAT32, 2, tensor, 1, 0, 0, 0, 0, NOW_NS - late_ns[tensor]
        ).encode()
        + bytes(SIZES_BYTES[False])
        for tensor in tensors
    ]
    memory = np.frombuffer(bytearray(b"".join(rows)), np.uint8)
    batches = [[DatagramGrid(memory, 0, 2, 104, 1, 104, np.zeros(2, np.uint8))]] * 2
    compiled = outcome(batches, asked=3)
    with without_passes():
        assert outcome(batches, asked=3) == compiled


@needs_passes
def test_datagrams_outside_their_memory_are_refused() -> None:
    header = AgentHeader(AgentKind.DATA, 0, ElementType.FLOAT32, 2, 3, 1, 0, 0, 0, 0, 5).encode()
    memory = np.frombuffer(bytearray(header + bytes(64)), np.uint8)
    grid = DatagramGrid(memory, 0, 2, 104, 1, 104, np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match="outside their memory"):
        outcome([[grid]])


@needs_passes
@given(st.lists(control_areas(), min_size=1, max_size=20))
def test_control_messages_and_their_memory_is_cleared(areas: list[tuple[bytes, int, int, int]]) -> None:
    words = np.frombuffer(bytearray(b"".join(area for area, *_ in areas)), np.int64).reshape(-1, 16)
    expected, count = parse_controls(words, KEY_OF_TOS), len(areas)
    found = Controls(np.empty(count, np.uint8), np.empty(count, np.int64), np.empty(count, np.int64))
    assert native.LIBRARY is not None
    native.LIBRARY.mlt_controls(
        words.ctypes.data,
        count,
        16,
        KEY_OF_TOS,
        libc.SOL_UDP | libc.UDP_GRO << 32,
        libc.SOL_SOCKET | libc.SO_TIMESTAMPNS << 32,
        found.tos.ctypes.data,
        found.segments.ctypes.data,
        found.times_ns.ctypes.data,
    )
    assert not words.any()
    for one, other in (
        (found.tos, expected.tos),
        (found.segments, expected.segments),
        (found.times_ns, expected.times_ns),
    ):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@needs_passes
@given(any_tensors())
def test_sums(case: tuple[TensorView, PacketLayout]) -> None:
    tensor, layout = case
    full = packet_rows(tensor, layout).full
    sums = PacketSums(layout.element_type, layout.elements_per_packet)
    found = sums.of(full)
    with without_passes():
        expected = PacketSums(layout.element_type, layout.elements_per_packet).of(full)
    some = np.arange(len(full))[::-2]
    assert np.array_equal(sums.of_chosen(full, some), found[some], equal_nan=True)
    ordinary = np.isfinite(found) & np.isfinite(expected)
    assert found[ordinary] == pytest.approx(expected[ordinary], rel=2e-5, abs=1e-44)
    close_to_the_largest = np.abs(expected) > 3e38
    assert (np.isfinite(found) == np.isfinite(expected))[~close_to_the_largest | ~ordinary].all()


def built(folder: Path, source: str) -> None:
    file = folder / "receiving.c"
    file.write_text(source, encoding="utf-8")
    command = ["cc", "-shared", "-fPIC", "-o", str(folder / f"{native.NAME}.so"), str(file)]
    subprocess.run(command, check=True, capture_output=True)


def test_what_does_not_fit_is_left_unused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.OFF, raising=False)
    assert native.load(tmp_path) == (None, "they were not built")
    (tmp_path / f"{native.NAME}.so").write_text("no library", encoding="ascii")
    library, problem = native.load(tmp_path)
    assert library is None
    assert problem.startswith("they cannot be loaded: ")
    monkeypatch.setenv(native.OFF, "0")
    assert native.load(tmp_path) == (None, native.UNWANTED)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (f"long mlt_version[{len(native.VERSION)}];", "they were built from another version of their source"),
        (f"long mlt_version[] = {{{', '.join(map(str, native.VERSION))}}};", "they cannot be loaded: "),
        ("int nothing;", "they cannot be loaded: "),
    ],
)
def test_what_was_built_from_something_else_is_left_unused(
    source: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(native.OFF, raising=False)
    built(tmp_path, source)
    library, found = native.load(tmp_path)
    assert library is None
    assert found.startswith(problem)


def test_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "LIBRARY", None)
    monkeypatch.setattr(native, "PROBLEM", "they were not built")
    (finding,) = [
        entry
        for entry in machine_findings(settings_of("host1", ["127.0.0.1"]))
        if "compiled" in entry.subject
    ]
    assert (finding.status, finding.seen) == (Status.WARNING, "they were not built")
