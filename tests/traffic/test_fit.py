"""Known processes, captured: the fit finds what they were made of."""

from math import inf
from pathlib import Path

import numpy as np
import pytest

from mltswitch.documents import dump_yaml, load_document
from mltswitch.queueing import Trace, mean_burst_packets
from mltswitch.traffic.document import ClassTraffic, Traffic
from mltswitch.traffic.fit import Classes, FitSettings, fit_capture
from tests.traffic.captures import (
    DSCP,
    FRAME_BYTES,
    PACKET_NANOSECONDS,
    RATE_BPS,
    Numbers,
    poisson_bursts,
    write_pcap,
)

SETTINGS = FitSettings(rate_bps=RATE_BPS)
UNIMPORTANT = 0.3


def fitted(
    file: Path,
    sizes: Numbers,
    *,
    load: float = 0.5,
    ratio: float = 1.0,
    per: str = "packet",
    tick: int = 1,
    senders: int = 256,
) -> ClassTraffic:
    draw = np.random.default_rng(99)
    times, sender = poisson_bursts(sizes, load, ratio, seed=7, senders=senders)
    if per == "burst":
        important = np.repeat(draw.random(len(sizes)) >= UNIMPORTANT, sizes)
    else:
        important = draw.random(len(times)) >= UNIMPORTANT
    (entry,) = fit_capture(write_pcap(file, times, sender, important, tick=tick), SETTINGS).classes
    assert entry.load == pytest.approx(load, rel=0.04)
    assert entry.unimportant_share == pytest.approx(UNIMPORTANT, abs=0.02)
    assert entry.dscp == (DSCP,)
    return entry


def test_single_packets(tmp_path: Path) -> None:
    entry = fitted(tmp_path / "capture", np.ones(40_000, dtype=np.int64))
    assert entry.mean_burst_packets == pytest.approx(1, rel=0.01)
    assert entry.index_of_dispersion == pytest.approx(1, rel=0.1)
    assert entry.fit is not None
    assert entry.fit.gap_p_value > 0.01
    assert entry.verdict.startswith("fits")


@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("per", ["packet", "burst"])
def test_bursts_of_one_size(tmp_path: Path, ratio: float, per: str) -> None:
    entry = fitted(tmp_path / "capture", np.full(8_000, 8), ratio=ratio, per=per)
    assert entry.mean_burst_packets == pytest.approx(8, rel=0.03)
    assert entry.source_rate_ratio == pytest.approx(ratio, rel=0.03)
    assert entry.importance == per
    assert entry.index_of_dispersion == pytest.approx(8, rel=0.2)
    assert entry.independent_index == pytest.approx(8, rel=0.05)
    assert entry.fit is not None
    assert entry.fit.sizes == "fixed"
    assert entry.fit.gap_p_value > 0.01
    assert entry.verdict.startswith("fits")


def test_bursts_at_once(tmp_path: Path) -> None:
    entry = fitted(tmp_path / "capture", np.full(8_000, 8), ratio=inf, per="burst")
    assert entry.mean_burst_packets == pytest.approx(8, rel=0.01)
    assert entry.source_rate_ratio is None
    assert entry.importance == "burst"


def test_geometric_sizes(tmp_path: Path) -> None:
    sizes = np.random.default_rng(3).geometric(1 / 6, 12_000)
    entry = fitted(tmp_path / "capture", sizes)
    assert entry.mean_burst_packets == pytest.approx(6, rel=0.05)
    assert entry.index_of_dispersion == pytest.approx(11, rel=0.2)
    assert entry.fit is not None
    assert entry.fit.sizes == "geometric"
    assert entry.fit.fixed_size_distance > 0.3
    assert entry.verdict.startswith("fits")


def test_a_microsecond_clock(tmp_path: Path) -> None:
    entry = fitted(tmp_path / "capture", np.full(8_000, 8), tick=1000)
    assert entry.mean_burst_packets == pytest.approx(8, rel=0.05)
    assert entry.source_rate_ratio == pytest.approx(1, rel=0.1)
    entry = fitted(tmp_path / "capture", np.ones(20_000, dtype=np.int64), tick=1000)
    assert entry.mean_burst_packets == pytest.approx(1, rel=0.05)


def test_one_busy_sender(tmp_path: Path) -> None:
    """No valley: the idle times of a busy link are as short as its packet times."""
    draw = np.random.default_rng(5)
    spacing = np.ones(80_000)
    spacing[::8] += draw.exponential(2.0, 10_000)
    times = np.cumsum(spacing) * PACKET_NANOSECONDS
    file = write_pcap(
        tmp_path / "capture", times, np.zeros(len(times), dtype=np.int64), draw.random(len(times)) < 0.5
    )
    (entry,) = fit_capture(file, SETTINGS).classes
    # the shortest idle times cannot be told from none: bursts merge
    assert 8 <= entry.mean_burst_packets < 12
    assert entry.source_rate_ratio == pytest.approx(1, rel=0.05)


def test_few_bursts_are_not_judged(tmp_path: Path) -> None:
    times, sender = poisson_bursts(np.full(10, 8), 0.2, 1.0, seed=1)
    file = write_pcap(tmp_path / "capture", times, sender, np.ones(len(times), dtype=bool))
    (entry,) = fit_capture(file, SETTINGS).classes
    assert entry.mean_burst_packets == 8
    assert entry.fit is None
    assert entry.verdict == "too few bursts to judge: 10"


def test_steady_packets_are_no_bursts(tmp_path: Path) -> None:
    times = np.arange(5_000, dtype=np.float64) * (2 * PACKET_NANOSECONDS)
    file = write_pcap(
        tmp_path / "capture", times, np.zeros(5_000, dtype=np.int64), np.ones(5_000, dtype=bool)
    )
    (entry,) = fit_capture(file, SETTINGS).classes
    assert entry.mean_burst_packets == 1
    assert entry.verdict.startswith("bursts are more regular")


def incast(file: Path) -> Path:
    """Every 1,000 packet times 16 senders send 25 packets each, a little apart."""
    draw = np.random.default_rng(4)
    rounds, senders, burst = 300, 16, 25
    epoch = np.repeat(np.arange(rounds), senders * burst) * 1000.0
    sender = np.tile(np.repeat(np.arange(senders), burst), rounds)
    jitter = np.repeat(draw.uniform(0, 40, rounds * senders), burst)
    times = epoch + jitter + np.tile(np.arange(burst), rounds * senders)
    return write_pcap(file, times * PACKET_NANOSECONDS, sender, np.ones(len(times), dtype=bool))


def test_incast_is_clustered(tmp_path: Path) -> None:
    (entry,) = fit_capture(incast(tmp_path / "capture"), SETTINGS).classes
    assert entry.mean_burst_packets == pytest.approx(25, rel=0.01)
    assert entry.load == pytest.approx(0.4, rel=0.02)
    assert entry.importance_correlation is None
    assert entry.verdict.startswith("bursts are clustered")
    assert entry.fit is not None
    assert entry.fit.gap_distance > 0.2


def test_a_gap_given_by_hand(tmp_path: Path) -> None:
    file = incast(tmp_path / "capture")
    whole_rounds = FitSettings(rate_bps=RATE_BPS, gap_seconds=500 * PACKET_NANOSECONDS * 1e-9)
    (entry,) = fit_capture(file, whole_rounds).classes
    assert entry.mean_burst_packets == pytest.approx(25, rel=0.01)
    (entry,) = fit_capture(file, FitSettings(rate_bps=RATE_BPS, gap_seconds=0.0)).classes
    assert entry.mean_burst_packets == 1


def test_two_classes_of_a_plan(tmp_path: Path) -> None:
    parts = []
    for dscp, load in ((10, 0.3), (18, 0.1)):
        times, sender = poisson_bursts(np.full(4_000, 4), load, 1.0, seed=dscp)
        is_important = np.full(len(times), dscp == 10)
        parts.append(write_pcap(tmp_path / "part", times, sender, is_important, dscp=dscp).read_bytes())
    file = tmp_path / "both"
    file.write_bytes(parts[0] + parts[1][24:])
    classes = Classes(("gradient-0", "gradient-1", "background"), {18: "gradient-0"}, "background")
    made = fit_capture(file, FitSettings(rate_bps=RATE_BPS, classes=classes))
    assert [(entry.name, entry.dscp) for entry in made.classes] == [
        ("gradient-0", (18,)),
        ("background", (10,)),
    ]
    assert [entry.unimportant_share for entry in made.classes] == [1, 0]
    assert made.classes[0].load == pytest.approx(0.1, rel=0.05)
    # the second part begins anew: it is sorted in, and that is said
    assert made.source.reordered_packets > 0
    assert any("were sorted" in note for note in made.notes)


def test_sizes_are_counted_in_full_packets(tmp_path: Path) -> None:
    """Frames as large as a segmentation offload makes them are bursts."""
    times, sender = poisson_bursts(np.ones(4_000, dtype=np.int64), 0.1, 1.0, seed=1)
    file = write_pcap(tmp_path / "capture", times, sender, np.ones(len(times), dtype=bool))
    made = fit_capture(file, FitSettings(rate_bps=RATE_BPS, packet_bytes=FRAME_BYTES // 2))
    assert made.classes[0].mean_burst_packets == 2
    assert any("more than" in note or "full-size" in note for note in made.notes)


def test_the_document_is_read_as_it_was_written_and_keeps_the_mean_of_many_sizes(tmp_path: Path) -> None:
    sizes = np.minimum(np.random.default_rng(3).geometric(1 / 40, 6_000), 400)
    times, sender = poisson_bursts(sizes, 0.4, 2.0, seed=2)
    file = write_pcap(tmp_path / "capture", times, sender, np.arange(len(times)) % 2 == 0)
    made = fit_capture(file, SETTINGS)
    out = tmp_path / "traffic.yaml"
    out.write_text(dump_yaml(made))
    assert load_document(out, Traffic) == made
    (entry,) = made.classes
    assert len(entry.sizes_packets) <= 64
    burst = mean_burst_packets(Trace(entry.sizes_packets, entry.probabilities))
    assert burst == pytest.approx(entry.mean_burst_packets, rel=1e-9)
    assert entry.unimportant_share == pytest.approx(0.5, abs=0.001)
    assert entry.source_rate_ratio == pytest.approx(2, rel=0.03)
