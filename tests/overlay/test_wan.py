"""WANs: rates that are drawn, and the same network made slower."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.overlay.wan import LEAST_QUEUE_BYTES, known_wan


def test_the_authors_network() -> None:
    overlay = known_wan("netstorm9").overlay()
    assert (len(overlay.ranks), len(overlay.links)) == (9, 26)
    rates = {link.rate_bps for link in overlay.links}
    assert min(rates) >= 20_000_000
    assert max(rates) <= 155_000_000
    assert not any(rate % 1_000_000 for rate in rates)
    assert {(link.delay_seconds, link.loss) for link in overlay.links} == {(0.03, 0.0002)}
    assert {(link.source, link.target) for link in overlay.links} == {
        (link.target, link.source) for link in overlay.links
    }


@pytest.mark.parametrize("sites", [5, 16])
def test_meshes(sites: int) -> None:
    overlay = known_wan(f"mesh{sites}").overlay()
    assert (len(overlay.ranks), len(overlay.links)) == (sites, sites * (sites - 1))


@given(st.integers(0, 10**6), st.integers(0, 50))
def test_a_draw_is_the_next_seeds_first(seed: int, number: int) -> None:
    assert known_wan(f"netstorm9:{seed}").overlay(number) == known_wan(f"netstorm9:{seed + number}").overlay()


def test_draws_differ() -> None:
    wan = known_wan("netstorm9")
    assert len({tuple(link.rate_bps for link in wan.overlay(number).links) for number in range(20)}) == 20


@given(st.integers(1, 1000), st.integers(0, 20))
def test_a_slower_network_has_the_same_shape(scale: int, number: int) -> None:
    wan = known_wan("mesh5")
    slow, fast = wan.scaled(scale), wan
    assert slow.changes is not None
    assert fast.changes is not None
    assert slow.changes.every_seconds == fast.changes.every_seconds / scale
    for one, other in zip(slow.overlay(number).links, fast.overlay(number).links, strict=True):
        assert one.rate_bps == pytest.approx(other.rate_bps / scale, abs=0.6)
        assert one.delay_seconds == other.delay_seconds / scale
        assert one.loss == other.loss
    assert {link.queue_bytes for link in slow.links} == {max(LEAST_QUEUE_BYTES, round(4_000_000 / scale**2))}


@pytest.mark.parametrize(
    ("scale", "see"),
    [(0.5, "0.5"), (float("nan"), "nan"), (1e7, "10000000.0"), (1e5, "leaves 200 bit/s of 20000000")],
)
def test_scales_that_leave_nothing(scale: float, see: str) -> None:
    with pytest.raises(UserInputError, match=see):
        known_wan("netstorm9").scaled(scale)


@pytest.mark.parametrize("word", ["mesh4", "mesh17", "mesh99"])
def test_meshes_that_are_none(word: str) -> None:
    with pytest.raises(UserInputError, match="mesh5 to mesh16"):
        known_wan(word)
