"""The shipped forwarder is what its source says, and the throughput benchmark counts right."""

import struct
import time
from itertools import count

import pytest

from benchmarks import basic_forwarding
from benchmarks.bmv2_throughput import (
    FRAME_BYTES,
    ON_THEIR_WAY,
    Speed,
    Turn,
    figures,
    forwarding_rate,
    probe_frame,
    take_turns,
)
from mltswitch.errors import MachineError
from mltswitch.lab import Engine
from mltswitch.lab.kernel import examine_for_bmv2
from mltswitch.p4.build import find_compiler

LOOK_SECONDS = 0.01


def test_the_shipped_forwarder_comes_from_its_source() -> None:
    program = basic_forwarding.basic_forwarding()
    assert program.source_sha256 == basic_forwarding.current_sha256(), "python -m benchmarks.basic_forwarding"


@pytest.mark.bmv2
def test_the_compiler_makes_the_shipped_forwarder() -> None:
    try:
        find_compiler()
    except MachineError as error:
        pytest.skip(str(error))
    for path, text in basic_forwarding.compile_source().items():
        assert path.read_text(encoding="utf-8") == text


def test_the_frame_is_valid() -> None:
    frame = probe_frame()
    assert len(frame) == FRAME_BYTES
    header = frame[14:34]
    total = sum(struct.unpack("!10H", header))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
    assert struct.unpack("!H", header[2:4])[0] == FRAME_BYTES - 14
    assert header[1] == 34 << 2 | 2


class Loop:
    """A switch that hands on what it gets, up to so many frames at a time, and loses some."""

    def __init__(self, at_once: int, lost: int = 0) -> None:
        self.inside = 0
        self.sent = 0
        self.most_inside = 0
        self._at_once, self._lost = at_once, lost

    def send(self, count: int) -> None:
        kept = max(0, count - self._lost)
        self._lost -= count - kept
        self.inside += kept
        self.sent += count
        self.most_inside = max(self.most_inside, self.inside)

    def new(self) -> int:
        out = min(self.inside, self._at_once)
        self.inside -= out
        return out


@pytest.mark.usefixtures("clock")
def test_no_more_are_on_their_way_than_a_port_takes() -> None:
    loop = Loop(at_once=7)
    rate = forwarding_rate(loop, loop, 1.0)  # type: ignore[arg-type]  # stands in for cable ends
    assert loop.most_inside == ON_THEIR_WAY < 32
    assert loop.inside == 0
    assert rate == pytest.approx(7 / LOOK_SECONDS, rel=0.02)


@pytest.mark.usefixtures("clock")
def test_a_lost_packet_is_no_figure() -> None:
    loop = Loop(at_once=ON_THEIR_WAY, lost=1)
    with pytest.raises(MachineError, match="1 packets were lost"):
        forwarding_rate(loop, loop, 1.0)  # type: ignore[arg-type]  # stands in for cable ends
    stuck = Loop(at_once=0)
    with pytest.raises(MachineError, match="nothing comes any more"):
        forwarding_rate(stuck, stuck, 60.0)  # type: ignore[arg-type]  # stands in for cable ends


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at it takes time, and nothing else does."""
    looks = count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(looks) * LOOK_SECONDS)
    monkeypatch.setattr(time, "sleep", lambda _: None)


def test_figures() -> None:
    turns = [(50.0, 100.0), (80.0, 100.0), (60.0, 200.0)]
    found = figures([Turn(Speed(ours, ours / 10), Speed(basic, basic / 10)) for ours, basic in turns])
    assert found == {
        "ours_packets_per_second": 60.0,
        "basic_packets_per_second": 100.0,
        "ratio_to_basic_forwarding": 0.5,
        "ratio_lowest": 0.3,
        "ratio_highest": 0.8,
        "ours_cpu_microseconds": 6.0,
        "basic_cpu_microseconds": 10.0,
        "turns": 3.0,
    }


@pytest.mark.root
@pytest.mark.bmv2
def test_both_programs_forward() -> None:
    try:
        examine_for_bmv2(Engine.NAMESPACES)
    except MachineError as error:
        pytest.skip(str(error))
    (turn,) = take_turns(1, 0.2)
    assert turn.ours.packets_per_second > 0
    assert turn.basic.packets_per_second > 0
