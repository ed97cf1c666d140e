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
        (5000, 5000),
        ("1000", 1000),
        ("2.5gbps", 25 * 10**8),
    ],
)
def test_rates(text: int | str, expected: int) -> None:
    assert units.parse_bps(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200kB", 200_000),
        ("192KiB", 196_608),
        ("16MiB", 2**24),
        ("7", 7),
        ("1.5kB", 1500),
        (" 2 MB ", 2_000_000),
    ],
)
def test_sizes(text: int | str, expected: int) -> None:
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "fast", "100", "1Xbps", "1.2345bps", "nan", "inf", "1e400G", "--1"])
def test_nonsense(text: str) -> None:
    with pytest.raises(ValueError, match=r"write for example|not a|no rate"):
        units.parse_bps(text)


@pytest.mark.parametrize(
    "value", [2.5e10, None, True, [1], {}, 10**400, -(10**30), "1e999999G", "9" * 5000, "25GBps", "1GB"]
)
def test_no_rate(value: object) -> None:
    with pytest.raises(ValueError, match=r"write for example 25Gbps|not a number that a network") as refusal:
        units.parse_bps(value)
    assert len(str(refusal.value)) < 160


@pytest.mark.parametrize("value", [0.5, None, False, [1], 10**30, "16Mb", "1kbit", "1.5 B"])
def test_no_size(value: object) -> None:
    with pytest.raises(ValueError, match=r"200kB|not a number|not a whole"):
        units.parse_bytes(value)


def test_bits_are_no_bytes() -> None:
    with pytest.raises(ValueError, match="b means bits, and sizes are in bytes"):
        units.parse_bytes("16Mb")
    with pytest.raises(ValueError, match="B means bytes, and rates are in bits"):
        units.parse_bps("25GBps")


@given(st.integers(1000, 10**13))
def test_printed_rates_can_be_read(rate_bps: int) -> None:
    assert units.parse_bps(units.format_bps(rate_bps)) == pytest.approx(rate_bps, rel=1e-5)


@given(st.floats(0, 1))
def test_small_ratios_are_not_printed_as_zero(ratio: float) -> None:
    assert (units.format_ratio(ratio) == "0") == (ratio == 0)


def test_ratios_of_one_column_look_alike() -> None:
    assert [units.format_ratio(ratio) for ratio in (0.0, 1e-48, 0.000952, 0.5)] == [
        "0",
        "< 0.001 %",
        "0.0952 %",
        "50 %",
    ]


def test_packets() -> None:
    assert units.frame_bytes(1500) == 1514
    assert units.bytes_to_packets(units.packets_to_bytes(7, 1514), 1514) == 7


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0"),
        (12.34e-6, "12.3 µs"),
        (4.5e-3, "4.5 ms"),
        (0.9999, "1 s"),
        (0.99999e-3, "1 ms"),
        (137.4, "137 s"),
        (1_234_567, "1,230,000 s"),
        (3e-12, "0.003 ns"),
        (-5e-6, "-5 µs"),
    ],
)
def test_a_time_has_the_unit_that_suits(seconds: float | None, text: str) -> None:
    assert units.format_seconds(seconds) == text
