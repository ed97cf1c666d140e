from hypothesis import given
from hypothesis import strategies as st

from mltswitch.capabilities import BandwidthCapability, BitRate, PortShare

KILOBITS = BandwidthCapability(
    kind="rate", source="test", step_bps=1000, minimum_bps=8000, maximum_bps=10_000_000_000
)
PERCENTS = BandwidthCapability(kind="percent", source="test")
SHARES = st.floats(0, 1, exclude_min=True)
PORTS = st.integers(10**6, 10**10)


def bps_of(bandwidth: object) -> int:
    assert isinstance(bandwidth, BitRate)
    return bandwidth.bps


@given(SHARES, PORTS)
def test_a_rate_is_the_nearest_step_on_the_safe_side(share: float, port_bps: int) -> None:
    least, most = bps_of(KILOBITS.at_least(share, port_bps)), bps_of(KILOBITS.at_most(share, port_bps))
    for rate in (least, most):
        assert rate % 1000 == 0
        assert 8000 <= rate <= 10_000_000_000
    exact = share * port_bps
    assert least > exact - 1
    assert least < exact + 1000 or least == 8000
    assert most < exact + 1 or most == 8000
    assert most > exact - 1000 or most == 8000


@given(SHARES, PORTS)
def test_percents_are_whole_and_never_none(share: float, port_bps: int) -> None:
    for bandwidth in (PERCENTS.at_least(share, port_bps), PERCENTS.at_most(share, port_bps)):
        assert isinstance(bandwidth, PortShare)
        assert 1 <= bandwidth.percent <= 100
        assert abs(bandwidth.percent - 100 * share) < 1.001


def test_a_whole_percent_stays_what_it_is() -> None:
    for percent in range(1, 101):
        assert PERCENTS.at_least(percent / 100, 1) == PortShare(percent)
        assert PERCENTS.at_most(percent / 100, 1) == PortShare(percent)


def test_they_print_with_their_unit() -> None:
    assert (str(BitRate(5000)), str(PortShare(5))) == ("5000 bit/s", "5 %")
