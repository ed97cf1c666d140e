"""Queue counters: rates, dispersion, and what of a burst shows in them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.traffic.document import ClassTraffic
from mltswitch.traffic.fit import FitSettings
from mltswitch.traffic.sources import fit_traffic
from tests.traffic.captures import Numbers

RATE_BPS = 10_000_000_000
INTERVAL_SECONDS = 0.001
SETTINGS = FitSettings(rate_bps=RATE_BPS)
Sizes = Callable[[np.random.Generator, int], Numbers]


def counts_of(sizes: Sizes, seed: int = 1, samples: int = 4_000, bursts: float = 40) -> Numbers:
    draw = np.random.default_rng(seed)
    return np.array([sizes(draw, count).sum() for count in draw.poisson(bursts, samples)])


def csv_of(counts: Numbers, *, start: int = 0, wrap: int = 2**64, bytes_each: int | None = 1000) -> str:
    totals = (np.concatenate(([0], np.cumsum(counts))) + start).tolist()
    heading = "time_seconds,class,packets" + ("" if bytes_each is None else ",bytes")
    lines = [heading]
    for number, total in enumerate(totals):
        tail = "" if bytes_each is None else f",{total * bytes_each % wrap}"
        lines.append(f"{number * INTERVAL_SECONDS:.6f},gradient-0,{total % wrap}{tail}")
    return "\n".join(lines) + "\n"


def fitted(file: Path, text: str, settings: FitSettings = SETTINGS) -> ClassTraffic:
    file.write_text(text)
    (entry,) = fit_traffic(file, settings).classes
    return entry


@pytest.mark.parametrize("size", [1, 8, 20])
def test_bursts_of_one_size(tmp_path: Path, size: int) -> None:
    counts = counts_of(lambda _, count: np.full(count, size))
    entry = fitted(tmp_path / "counters.csv", csv_of(counts))
    assert entry.index_of_dispersion == pytest.approx(size, rel=0.2)
    assert entry.mean_burst_packets == pytest.approx(size, rel=0.2)
    assert np.dot(entry.sizes_packets, entry.probabilities) == pytest.approx(entry.mean_burst_packets)
    load = counts.sum() * 8000 / (len(counts) * INTERVAL_SECONDS) / RATE_BPS
    assert entry.load == pytest.approx(load, rel=1e-6)
    assert entry.verdict.startswith("estimated from counters")


def test_geometric_bursts(tmp_path: Path) -> None:
    counts = counts_of(lambda draw, count: draw.geometric(1 / 6, count))
    entry = fitted(tmp_path / "counters.csv", csv_of(counts))
    assert entry.index_of_dispersion == pytest.approx(11, rel=0.2)
    assert entry.geometric_mean_packets == pytest.approx(6, rel=0.2)


def test_counters_do_not_tell_what_is_unimportant(tmp_path: Path) -> None:
    entry = fitted(tmp_path / "counters.csv", csv_of(counts_of(lambda _, count: np.full(count, 4))))
    assert entry.unimportant_share is None


def test_json_lines_say_the_same(tmp_path: Path) -> None:
    text = csv_of(counts_of(lambda _, count: np.full(count, 4), samples=100))
    names, *rows = [line.split(",") for line in text.splitlines()]
    lines = [
        json.dumps(dict(zip(names, [float(row[0]), row[1], *map(int, row[2:])], strict=True))) for row in rows
    ]
    assert fitted(tmp_path / "a", text) == fitted(tmp_path / "b", "\n\n".join(lines))


def test_counters_of_32_bits(tmp_path: Path) -> None:
    counts = counts_of(lambda _, count: np.full(count, 4), samples=200)
    plain = fitted(tmp_path / "counters", csv_of(counts))
    (tmp_path / "wrapped").write_text(csv_of(counts, start=2**32 - 2000, wrap=2**32))
    made = fit_traffic(tmp_path / "wrapped", SETTINGS)
    assert made.classes[0].dispersion == plain.dispersion
    assert made.classes[0].load == pytest.approx(plain.load)
    assert made.source.wraps >= 1
    assert any("began anew" in note for note in made.notes)


def _jumping(before: int, now: int, step: int) -> str:
    totals = [*range(before - 29 * step, before + 1, step), *range(now, now + 30 * step, step)]
    return "time_seconds,class,packets\n" + "".join(f"{n},a,{total}\n" for n, total in enumerate(totals))


def test_a_reset_from_high_up_is_no_wrap(tmp_path: Path) -> None:
    """2³² - 3·10⁹ packets in one step, where the others have 1,000: the counter was reset."""
    settings = FitSettings(rate_bps=RATE_BPS, packet_bytes=1000)
    with pytest.raises(UserInputError, match=r":32: packets: the counter went back from 3000000000 to 7,"):
        fitted(tmp_path / "reset", _jumping(3_000_000_000, 7, 1000), settings)
    with pytest.raises(UserInputError, match=":32: packets: the counter went back"):
        fitted(tmp_path / "fast", _jumping(2**32 - 11_000, 7, 1000), settings)
    assert fitted(tmp_path / "wrap", _jumping(2**32 - 9_000, 7, 1000), settings).packets == 58 * 1000 + 9007
    with pytest.raises(UserInputError, match=":32: packets: the counter went back"):
        fitted(tmp_path / "resting", _still(3_000_000_000, 7), settings)


def _still(before: int, now: int) -> str:
    totals = [before] * 30 + [now] * 30
    return "time_seconds,class,packets\n" + "".join(f"{n},a,{total}\n" for n, total in enumerate(totals))


def test_what_counters_do_not_show_is_called_estimated(tmp_path: Path) -> None:
    counts = counts_of(lambda _, count: np.full(count, 4), samples=100)
    (tmp_path / "counters").write_text(csv_of(counts, bytes_each=None))
    made = fit_traffic(tmp_path / "counters", FitSettings(rate_bps=RATE_BPS, packet_bytes=1000))
    assert made.classes[0].kind == "estimated"
    assert any("loads are estimated" in note for note in made.notes)
    assert any("burst sizes are estimated" in note for note in made.notes)


def test_without_bytes_the_size_is_given(tmp_path: Path) -> None:
    counts = counts_of(lambda _, count: np.full(count, 4), samples=200)
    text = csv_of(counts, bytes_each=None)
    with pytest.raises(UserInputError, match="--mtu"):
        fitted(tmp_path / "counters", text)
    entry = fitted(tmp_path / "counters", text, FitSettings(rate_bps=RATE_BPS, packet_bytes=1000))
    assert entry.load == pytest.approx(fitted(tmp_path / "other", csv_of(counts)).load)


HEADING = "time_seconds,class,packets,bytes\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("time_seconds,class\n1,a\n", ":1: no column packets"),
        (HEADING, "holds no samples"),
        (HEADING + "1,a,5,9\n", "class a has 1 samples"),
        (HEADING + "1,a,5\n", ":2: 3 values under 4 columns"),
        (HEADING + "1,a,-5,9\n", ":2: packets: '-5' cannot be used"),
        (HEADING + "1,a,nan,9\n", ":2: packets: 'nan' cannot be used"),
        (HEADING + "1,a,1.5,9\n", ":2: packets: '1.5' cannot be used"),
        (HEADING + "now,a,5,9\n", ":2: time_seconds: 'now' cannot be used"),
        (HEADING + "inf,a,5,9\n", ":2: time_seconds: 'inf' cannot be used"),
        (HEADING + "1,,5,9\n", ":2: class: '' cannot be used"),
        (HEADING + "2,a,5,9\n1,a,6,10\n", ":3: time_seconds: time does not go on"),
        (HEADING + "1,a,5,9\n2,a,4,10\n", ":3: packets: the counter went back from 5 to 4"),
        ('{"time_seconds": 1, "class": "a"}\n', ":1: packets: is missing"),
        ('{"time_seconds": 1, "class": "a", "packets": true}\n', ":1: packets: 'True' cannot be used"),
        ('{"time_seconds": 1\n', ":1: is no JSON"),
        (HEADING + "x" * 5000, ":2: longer than 4096 bytes"),
        (HEADING + "".join(f"{n},a,7,9\n" for n in range(30)), "counts no packets"),
    ],
)
def test_lines_that_cannot_be_used(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(UserInputError) as refusal:
        fitted(tmp_path / "counters", text)
    assert line in str(refusal.value)
