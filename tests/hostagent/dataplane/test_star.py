"""BBR and `ltp` on a link that flows share, in virtual time: throughput, queues, incasts (LTP, fig. 14)."""

import pytest

from mltswitch.hostagent.dataplane.binding import lib
from mltswitch.hostagent.early_close import EarlyCloseSettings, History
from tests.hostagent.dataplane.ends import MILLISECOND, SECOND
from tests.hostagent.dataplane.star import Arrived, Star

RATE_BPS = 100e6


@pytest.mark.parametrize("repair", [lib.MLT_AT_ONCE, lib.MLT_IN_PASSES])
@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_bbr_alone_fills_the_link_and_keeps_its_queue_short(loss: float, repair: int) -> None:
    star = Star(1, RATE_BPS, 10 * MILLISECOND, 1_000_000, loss, repair)
    star.gather(4_000_000, loss_bound=loss)  # 20 round trips and more
    star.deepest_bytes = 0
    [found] = star.gather(8_000_000, loss_bound=loss)
    carried = star.limit_seconds(8_000_000) / (1 - loss)  # what is lost behind the link has passed it
    assert carried / (found.elapsed_ns / SECOND) >= 0.9
    assert star.deepest_bytes <= 1.5 * RATE_BPS / 8 * 10e-3


def _rounds(star: Star, size_bytes: int, count: int) -> list[list[Arrived]]:
    """With LTs as an agent learns them."""
    history, settings, found = History(), EarlyCloseSettings(), []
    for _ in range(count):
        numbers = range(1, star.senders + 1)
        lts_ns = {at: history.lt_ns(str(at), size_bytes, settings) for at in numbers}
        found.append(star.gather(size_bytes, loss_bound=0.2, lts_ns=lts_ns))
        for at, each in zip(numbers, found[-1], strict=True):
            history.learn(str(at), size_bytes, each.elapsed_ns, each.share)
    return found


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_an_incast_takes_as_long_as_the_link_needs(loss: float) -> None:
    star = Star(8, RATE_BPS, MILLISECOND // 5, 100_000, loss)
    rounds = _rounds(star, 250_000, 12)
    assert all(each.share == 1 for each in rounds[0])
    shares = [each.share for found in rounds for each in found]
    assert sum(shares) / len(shares) >= 0.97
    limit = star.limit_seconds(250_000)
    assert all(max(each.seconds for each in found) <= 1.3 * limit for found in rounds[1:])


def test_loss_does_not_lengthen_incasts_at_the_rate_of_the_paper() -> None:
    """LTP, fig. 14: the batch synchronization time is level over loss rates."""
    last = []
    for loss in (0.0, 0.001, 0.01):
        star = Star(8, 10e9, MILLISECOND // 10, 1_000_000, loss, burst_packets=20)
        rounds = _rounds(star, 4_000_000, 2)
        last.append(max(each.seconds for each in rounds[-1]))
    assert max(last) <= 1.3 * min(last)
