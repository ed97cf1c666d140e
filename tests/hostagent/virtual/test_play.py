"""The judge of the scenarios sees each fault that it is there for."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mltswitch.hostagent.errors import DeadlineExceededError
from mltswitch.hostagent.transport.interfaces import Direction, Event, TransferDone
from tests.hostagent.virtual.links import LinkSettings
from tests.hostagent.virtual.network import NO_ATTACK, ControlSettings, HostSettings, Side
from tests.hostagent.virtual.play import Play
from tests.hostagent.virtual.scenario import SECOND, Kind, Scenario, Transfer, scenario

CALM = LinkSettings(delay_ns=10_000, loss=0.1)
Sabotage = Callable[[Play, Side, Event], list[Event]]


def calm(seed: int = 0, **changes: object) -> Scenario:
    """One pair, one tensor of forty packets, a tenth of which may be missing."""
    drawn = next(entry for entry in map(scenario, range(seed, 10_000)) if entry.kind is Kind.BENIGN)
    pair = replace(
        drawn.pairs[0],
        paths=1,
        links=((CALM,), (CALM,)),
        control=ControlSettings(),
        hosts=(HostSettings(), HostSettings()),
        attack=NO_ATTACK,
        authenticate=(False, False),
        payload_bytes=(128, 128),
        window_bytes=(100_000, 100_000),
    )
    transfer: Transfer = replace(
        drawn.transfers[0],
        pair=0,
        element_count=720,
        received_count=720,
        received_type=drawn.transfers[0].element_type,
        importance=("front", 0.5),
        loss_bound=0.5,
        important_loss_bound=None,
        keep_missing=False,
        post_ns={Direction.SEND: 0, Direction.RECEIVE: 0},
        deadline_ns={Direction.SEND: SECOND, Direction.RECEIVE: SECOND},
        cancel_ns={},
    )
    return replace(drawn, pairs=(pair,), transfers=(replace(transfer, **changes),))  # type: ignore[arg-type]  # any field


def played(given: Scenario, sabotage: Sabotage) -> Play:
    play = Play(given)
    happened = play.network.happened

    def sabotaged(side: Side, event: Event) -> None:
        for changed in sabotage(play, side, event):
            happened(side, changed)

    play.network.happened = sabotaged
    play.run()
    return play


def is_done(event: Event, direction: Direction) -> bool:
    return isinstance(event, TransferDone) and event.direction is direction


def test_without_sabotage_nothing_is_wrong() -> None:
    play = played(calm(), lambda play, side, event: [event])
    assert play.outcome.complete == 1
    assert play.outcome.incomplete_within_bound == 1


def swallowed(play: Play, side: Side, event: Event) -> list[Event]:
    return [] if is_done(event, Direction.SEND) else [event]


def told_twice(play: Play, side: Side, event: Event) -> list[Event]:
    return [event, event] if is_done(event, Direction.SEND) else [event]


def wrong_bitmap(play: Play, side: Side, event: Event) -> list[Event]:
    if isinstance(event, TransferDone) and event.received is not None:
        turned = event.received.copy()
        turned[[int(np.argmax(turned)), int(np.argmin(turned))]] ^= True
        return [replace(event, received=turned)]
    return [event]


def all_missing(play: Play, side: Side, event: Event) -> list[Event]:
    if isinstance(event, TransferDone) and event.received is not None:
        return [replace(event, received=np.zeros_like(event.received))]
    return [event]


def foreign_byte(play: Play, side: Side, event: Event) -> list[Event]:
    if is_done(event, Direction.RECEIVE):
        play.tracks[0].buffer[5] ^= 0xFF
    return [event]


def overrun(play: Play, side: Side, event: Event) -> list[Event]:
    if is_done(event, Direction.RECEIVE):
        play.tracks[0].guarded[-1] = 0
    return [event]


def written_late(play: Play, side: Side, event: Event) -> list[Event]:
    if is_done(event, Direction.RECEIVE):
        buffer = play.tracks[0].buffer
        play.network.at(play.network.now_ns + 1_000_000, lambda _: buffer.__setitem__(0, buffer[0] ^ 0xFF))
    return [event]


def receiver_fails(play: Play, side: Side, event: Event) -> list[Event]:
    if isinstance(event, TransferDone) and event.direction is Direction.RECEIVE:
        return [replace(event, error=DeadlineExceededError("late"))]
    return [event]


def counted_wrong(play: Play, side: Side, event: Event) -> list[Event]:
    if isinstance(event, TransferDone) and event.direction is Direction.SEND and event.statistics:
        counts = replace(event.statistics, packets_received=event.statistics.packets_received - 1)
        return [replace(event, statistics=counts)]
    return [event]


@pytest.mark.parametrize(
    ("sabotage", "words"),
    [
        (swallowed, "has not ended"),
        (told_twice, "ends twice"),
        (wrong_bitmap, "bytes are wrong"),
        (all_missing, "missing"),
        (foreign_byte, "wrong|foreign"),
        (overrun, "around the tensor"),
        (written_late, "written after its end"),
        (receiver_fails, "complete at the sender"),
        (counted_wrong, "packets_received"),
    ],
)
def test_each_fault_is_seen(sabotage: Sabotage, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        played(calm(), sabotage)


def test_an_end_after_the_deadline_is_seen() -> None:
    play = Play(calm(post_ns={Direction.SEND: None, Direction.RECEIVE: 0}))
    happened = play.network.happened
    play.network.happened = lambda side, event: play.network.at(
        play.network.now_ns + SECOND // 2, lambda _: happened(side, event)
    )
    with pytest.raises(AssertionError, match="after its deadline"):
        play.run()


def test_what_no_checksum_sees_arrives_wrong_without_authentication_and_never_with_it() -> None:
    given = calm(loss_bound=0.0)
    link = replace(CALM, corrupted=0.2, unnoticed=1.0, flips_anything=True)
    pair = replace(given.pairs[0], links=((link,), (link,)))
    with pytest.raises(AssertionError, match="wrong"):
        Play(replace(given, pairs=(pair,))).run()
    authenticated = replace(pair, authenticate=(True, False))
    assert Play(replace(given, pairs=(authenticated,))).run().complete == 1


def test_an_incomplete_benign_scenario_is_seen() -> None:
    given = calm(post_ns={Direction.SEND: None, Direction.RECEIVE: 0})
    with pytest.raises(AssertionError, match="can be survived"):
        Play(given).run()
