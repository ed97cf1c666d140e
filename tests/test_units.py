"""Units: what people write, and what is printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch import units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("25Gbps", 25 * 10**9),
        ("100 Mbit/s", 10**8),
        ("1.5kbit", 1500),
        (50, 50),
        ("10", 10),
        ("2.5gbps", 25 * 10**8),
    ],
)
def test_rates(text: int | str, expected: int) -> None:
    assert units.parse_bps(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200kB", 200_000), ("192KiB", 196_608), ("16MiB", 2**24), ("7", 7), ("1.5kb", 1500)],
)
def test_sizes(text: int | str, expected: int) -> None:
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "fast", "1Xbps", "1.2345bps", "nan", "inf", "1e400G", "--1"])
def test_nonsense(text: str) -> None:
    with pytest.raises(ValueError, match=r"write for example|not a"):
        units.parse_bps(text)


@given(st.integers(0, 10**13))
def test_printed_rates_can_be_read(rate_bps: int) -> None:
    assert units.parse_bps(units.format_bps(rate_bps)) == pytest.approx(rate_bps, rel=1e-5)


@given(st.floats(0, 1))
def test_small_ratios_are_not_printed_as_zero(ratio: float) -> None:
    assert (units.format_ratio(ratio) == "0") == (ratio == 0)


def test_packets() -> None:
    assert units.frame_bytes(1500) == 1514
    assert units.bytes_to_packets(units.packets_to_bytes(7, 1514), 1514) == 7
