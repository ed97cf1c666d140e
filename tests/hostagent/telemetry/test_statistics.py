"""What completions say is what happened on the wire, in virtual time."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE
from mltswitch.hostagent.transport.interfaces import (
    Direction,
    Event,
    Stage,
    TransferDone,
    TransferProgress,
    TransferStatistics,
)
from mltswitch.wire import AgentFlag, AgentKind
from tests.hostagent.virtual.links import Link, LinkSettings
from tests.hostagent.virtual.network import Side
from tests.hostagent.virtual.play import Play
from tests.hostagent.virtual.scenario import Scenario
from tests.hostagent.virtual.test_play import calm

PATHS = 3


class Wire:
    """Counts data packets as links carry or lose them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[bool] = Counter()
        """By importance, as the two that follow."""
        self.lost: Counter[bool] = Counter()
        self.by_path: Counter[int] = Counter()
        self.marked = 0
        carry = Link.carry

        def counted(link: Link, payload: bytes, tos: int, now_ns: int) -> list[tuple[int, bytes, int]]:
            arrivals = carry(link, payload, tos, now_ns)
            header = np.frombuffer(payload[: HEADER_DTYPE.itemsize], HEADER_DTYPE)[0]
            if header["kind"] == AgentKind.DATA:
                is_important = bool(header["flags"] & AgentFlag.IMPORTANT)
                self.sent[is_important] += 1
                self.by_path[int(header["path"])] += 1
                self.lost[is_important] += not arrivals
                self.marked += sum(byte & 3 == 3 for _, _, byte in arrivals)
            return arrivals

        monkeypatch.setattr(Link, "carry", counted)


def played(given: Scenario) -> tuple[dict[Direction, TransferStatistics], list[TransferProgress]]:
    play = Play(given)
    done: dict[Direction, TransferStatistics] = {}
    progress: list[TransferProgress] = []
    happened = play.network.happened

    def remembered(side: Side, event: Event) -> None:
        if isinstance(event, TransferDone):
            assert event.statistics is not None
            done[event.direction] = event.statistics
        elif isinstance(event, TransferProgress):
            progress.append(event)
        happened(side, event)

    play.network.happened = remembered
    for side in play.network.sides:
        side.end.observe(is_observed=True)  # type: ignore[attr-defined]  # they are connections
    play.run()
    return done, progress


def lossy(seed: int, loss: float, **changes: object) -> Scenario:
    given = calm(loss_bound=0.0, element_count=7200, received_count=7200, importance=("scattered", 0.4))
    links = (LinkSettings(delay_ns=10_000, loss=loss),) * PATHS
    transfer = replace(given.transfers[0], **changes)  # type: ignore[arg-type]  # any field
    return replace(
        given,
        seed=seed,
        pairs=(replace(given.pairs[0], paths=PATHS, links=(links, links)),),
        transfers=(transfer,),
    )


@pytest.mark.parametrize("seed", range(8))
def test_losses_are_those_of_the_wire(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    wire = Wire(monkeypatch)
    done, progress = played(lossy(seed, 0.1))
    sent, received = done[Direction.SEND], done[Direction.RECEIVE]
    assert sent.packets_sent == wire.sent.total()
    assert wire.lost[True] > 0, "a test without losses"
    # Nothing may stay missing, so the last pass, which nobody answered, lost nothing.
    assert (sent.packets_lost, sent.important_lost) == (wire.lost.total(), wire.lost[True])
    assert sent.packets_by_path == tuple(wire.by_path[path] for path in range(PATHS))
    assert sum(received.packets_by_path) == wire.sent.total() - wire.lost.total()
    assert received.packets_received == received.packets == sent.packets_received
    assert sent.important_packets == sent.important_received == received.important_received
    assert sent.missing_share == sent.important_missing_share == sent.unimportant_missing_share == 0
    (of_class,) = sent.classes
    assert (of_class.packets_sent, of_class.important_sent) == (wire.sent.total(), wire.sent[True])
    assert (of_class.packets_lost, of_class.important_lost) == (wire.lost.total(), wire.lost[True])
    assert of_class.packets_resent == sent.packets_resent == wire.sent.total() - sent.packets
    (arrived,) = received.classes
    assert arrived.packets_received == wire.sent.total() - wire.lost.total()
    assert received.marked_share == 0
    assert sent.marked_share is None
    of_sender = [entry for entry in progress if entry.direction is Direction.SEND]
    assert [entry.stage for entry in of_sender[:3]] == [Stage.BEGUN, Stage.ASKED, Stage.ANSWERED]
    assert of_sender[1].packets_sent == sent.packets
    assert of_sender[1].packets_lost is None
    assert of_sender[-2].stage is Stage.ANSWERED
    assert of_sender[-2].packets_lost == sent.packets_lost
    asked = [entry for entry in progress if entry.stage is Stage.ASKED]
    assert {entry.attempt for entry in asked} == set(range(1, sent.probes + 1))


def test_what_is_lost_within_the_bound_is_told_by_importance(monkeypatch: pytest.MonkeyPatch) -> None:
    Wire(monkeypatch)
    given = lossy(1, 0.2, loss_bound=0.3, important_loss_bound=0.05)
    done, _ = played(given)
    sent, received = done[Direction.SEND], done[Direction.RECEIVE]
    for end in (sent, received):
        assert end.important_missing_share is not None
        assert end.unimportant_missing_share is not None
        assert end.important_missing_share <= 0.05
        assert end.missing_share is not None
        assert 0 < end.missing_share <= 0.3
        assert end.important_missing_share <= end.missing_share <= end.unimportant_missing_share


def test_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch)
    given = lossy(2, 0.0, importance=("all", 1.0))
    links = (LinkSettings(delay_ns=10_000, rate_bps=50e6, ecn_threshold_bytes=1000),) * PATHS
    given = replace(given, pairs=(replace(given.pairs[0], links=(links, links)),))
    done, _ = played(given)
    received = done[Direction.RECEIVE]
    assert wire.marked > 0
    assert received.packets_marked == wire.marked
    assert received.marked_share == wire.marked / wire.sent.total()
    assert sum(entry.packets_marked or 0 for entry in received.classes) == wire.marked


def test_what_nobody_knows_is_none() -> None:
    nothing = TransferStatistics(0, 0.0, 0, 0, 0, 0, 0, None, None, None, None, 0)
    assert nothing.missing_share is None
    assert nothing.important_missing_share is None
    assert nothing.unimportant_missing_share is None
    assert nothing.marked_share is None
    assert nothing.goodput_bps == 0
