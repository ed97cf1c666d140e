"""Who waits for a round that the other end can post no more is told at once, whatever crosses on the way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.errors import AgentError, CancelledError
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.interfaces import Direction, TransferDone, TransferKey
from mltswitch.hostagent.transport.messages import Cancel, MessageReader, Ready, Reason, encode_message
from mltswitch.hostagent.transport.rounds import ByRound, Latest
from mltswitch.hostagent.transport.sending import SendTransfer
from mltswitch.hostagent.transport.settings import ConnectionSettings
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk

LATEST_ROUND = 3
SKIPPED = "the receiver has skipped it"


def ended(end: Connection) -> dict[TransferKey, AgentError | None]:
    return {event.key: event.error for event in end.events() if isinstance(event, TransferDone)}


@pytest.mark.parametrize("is_ready_first", [True, False])
def test_rounds_that_the_receiver_skips_end_at_the_sender(is_ready_first: bool) -> None:
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    receiver.receive(incoming(7, 3), 1)
    if is_ready_first:
        talk(sender, receiver)
    for number, round_number in ((7, 1), (7, 2), (7, 3), (7, 4), (8, 1)):
        sender.send(outgoing(number, round_number), 1)
    talk(sender, receiver)
    found = ended(sender)
    assert list(found) == [TransferKey(7, 1), TransferKey(7, 2)]
    for error in found.values():
        assert type(error) is CancelledError
        assert error.what == SKIPPED
    assert ended(receiver) == {}
    bursts = sender.bursts(1, 100)
    assert bursts is not None, "the round that is there goes on"
    assert bursts.headers["round"].tolist() == [3] * bursts.packet_count
    assert sender.traffic().open_sends == 3


def test_a_round_that_has_begun_is_not_skipped() -> None:
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    sender.send(outgoing(7, 1), 1)
    for round_number in (1, 2):
        receiver.receive(incoming(7, round_number), 1)
        talk(sender, receiver)
    assert ended(sender) == {}


def test_what_crosses_its_cancellation_skips_earlier_rounds_all_the_same() -> None:
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    for round_number in (1, 2):
        sender.send(outgoing(7, round_number), 1)
    sender.cancel(TransferKey(7, 2), Direction.SEND, "too late", 1)
    talk(sender, receiver)
    receiver.receive(incoming(7, 2), 1)
    talk(sender, receiver)
    errors = ended(sender)
    assert [error.what for error in errors.values() if error is not None] == ["cancelled: too late", SKIPPED]


def test_what_is_given_up_before_the_ends_have_met_skips_nothing_that_was_posted_before() -> None:
    sender, receiver = connection(1), connection(2)
    for round_number in (1, 2):
        receiver.receive(incoming(7, round_number), 1)
    receiver.cancel(TransferKey(7, 2), Direction.RECEIVE, "too late", 1)
    for round_number in (1, 2):
        sender.send(outgoing(7, round_number), 1)
    talk(sender, receiver)
    assert list(ended(sender)) == list(ended(receiver)) == [TransferKey(7, 2)]


@pytest.mark.parametrize("cancelled", [(1,), (2,), (1, 3), (1, 2, 3)])
def test_what_is_said_when_the_ends_meet_is_in_the_order_of_rounds(cancelled: tuple[int, ...]) -> None:
    sender, receiver = connection(1), connection(2)
    for round_number in (1, 2, 3):
        receiver.receive(incoming(7, round_number), 1)
    for round_number in reversed(cancelled):
        receiver.cancel(TransferKey(7, round_number), Direction.RECEIVE, "too late", 1)
    receiver.control_received(sender.control_to_send(), 1)
    messages = MessageReader(is_greeted=False).messages(receiver.control_to_send())
    said = [message for message in messages if isinstance(message, Ready | Cancel)]
    assert [message.key.round_number for message in said] == [1, 2, 3]
    assert [message.key.round_number for message in said if isinstance(message, Cancel)] == list(cancelled)


class Counted(int):
    """A number that counts how often it is compared with others."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)


@pytest.mark.parametrize("is_rising", [True, False])
def test_looking_for_earlier_rounds_does_not_look_at_all_of_them(
    is_rising: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,096 may wait, and each word of the peer's asks."""
    monkeypatch.setattr(Counted, "compared", 0)
    numbers = [Counted(number) for number in range(4096)]
    kept: ByRound[int] = ByRound()
    for number in numbers if is_rising else reversed(numbers):
        kept.add(TransferKey(7, number), number)
    for number in numbers:
        key = TransferKey(7, number)
        assert kept.pop_earlier(key) == []
        assert kept.pop(key) == number
    assert len(kept) == 0
    assert Counted.compared <= 3 * 4096 * 13, "a search in each of three steps"


@given(st.lists(st.tuples(st.sampled_from(["add", "pop", "earlier"]), st.integers(0, 1), st.integers(0, 6))))
def test_what_is_kept_by_round_is_as_in_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    kept: ByRound[int] = ByRound()
    plain: dict[tuple[int, int], int] = {}
    for entry, (step, tensor, number) in enumerate(steps):
        key = TransferKey(tensor, number)
        if step == "add":
            kept.add(key, entry)
            plain[tensor, number] = entry
        elif step == "pop":
            assert kept.pop(key) == plain.pop((tensor, number), None)
        else:
            earlier = sorted(place for place in plain if place[0] == tensor and place[1] < number)
            assert kept.pop_earlier(key) == [(TransferKey(*place), plain.pop(place)) for place in earlier]
        assert len(kept) == len(plain)


def test_a_transfer_that_has_not_begun_ends_without_a_look_at_the_others() -> None:
    """Each end of many would look at all that leave."""

    class Unseen(list[tuple[int, int, SendTransfer]]):
        def __iter__(self) -> Iterator[tuple[int, int, SendTransfer]]:
            raise AssertionError("looked at")

    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    receiver.receive(incoming(8, 1), 1)
    for number, round_number in ((8, 1), (7, 1), (7, 2)):
        sender.send(outgoing(number, round_number), 1)
    talk(sender, receiver)
    outbox = sender._outbox
    assert len(outbox._sendable) == 1
    outbox._sendable = Unseen(outbox._sendable)
    sender.cancel(TransferKey(7, 1), Direction.SEND, "too late", 1)
    sender.cancel(TransferKey(7, 2), Direction.SEND, "too late", 1)
    assert len(ended(sender)) == 2
    with pytest.raises(AssertionError, match="looked at"):
        sender.cancel(TransferKey(8, 1), Direction.SEND, "too late", 1)


def test_a_peer_that_is_ready_for_a_round_that_it_skipped_is_told_so() -> None:
    """No agent says so, but another peer might."""
    sender, receiver = connection(1), connection(2)
    talk(sender, receiver)
    sender.send(outgoing(7, 1), 1)
    for round_number in (2, 1):
        ready = Ready(TransferKey(7, round_number), 1, 100, 0.0, None)
        sender.control_received(encode_message(ready), 1)
    assert not sender.is_over
    answer = Cancel(TransferKey(7, 1), Direction.SEND, Reason.CANCELLED, "the sender has given it up")
    assert sender.control_to_send().endswith(encode_message(answer))


def test_what_peers_say_of_their_rounds_does_not_fill_the_memory() -> None:
    latest = Latest(2)
    for tensor, round_number in ((1, 5), (2, 5), (1, 4), (3, 5)):
        latest.heard(TransferKey(tensor, round_number))
    assert [latest.is_past(TransferKey(tensor, 5)) for tensor in (1, 2, 3)] == [True, False, True]
    assert not latest.is_past(TransferKey(1, 6))


@dataclass
class Meeting:
    """Two ends whose words may wait on the way, and all that they were asked to do."""

    ends: Mapping[Direction, Connection] = field(
        default_factory=lambda: {
            Direction.SEND: connection(1, ConnectionSettings(maximum_transfers=64)),
            Direction.RECEIVE: connection(2, ConnectionSettings(maximum_transfers=64)),
        }
    )
    posted: Mapping[Direction, set[TransferKey]] = field(
        default_factory=lambda: {direction: set() for direction in Direction}
    )
    ended: Mapping[Direction, dict[TransferKey, AgentError | None]] = field(
        default_factory=lambda: {direction: {} for direction in Direction}
    )
    cancelled: set[TransferKey] = field(default_factory=set)
    on_the_way: Mapping[Direction, bytearray] = field(
        default_factory=lambda: {direction: bytearray() for direction in Direction}
    )
    """By who said it."""

    def post(self, direction: Direction, key: TransferKey) -> None:
        if key.round_number <= self.last(direction, key.tensor):
            return
        self.posted[direction].add(key)
        if direction is Direction.SEND:
            self.ends[direction].send(outgoing(key.tensor, key.round_number), 1)
        else:
            self.ends[direction].receive(incoming(key.tensor, key.round_number), 1)
        self._look()

    def cancel(self, direction: Direction, key: TransferKey) -> None:
        if key in self.posted[direction] and key not in self.ended[direction]:
            self.cancelled.add(key)
            self.ends[direction].cancel(key, direction, "asked to", 1)
            self._look()

    def carry(self, said_by: Direction, share: float) -> None:
        """So much of what one end has said arrives, cut anywhere."""
        words = self.on_the_way[said_by]
        words += self.ends[said_by].control_to_send()
        size_bytes = round(len(words) * share)
        other = Direction.RECEIVE if said_by is Direction.SEND else Direction.SEND
        self.ends[other].control_received(bytes(words[:size_bytes]), 1)
        del words[:size_bytes]
        self._look()

    def last(self, direction: Direction, tensor: int) -> int:
        return max((key.round_number for key in self.posted[direction] if key.tensor == tensor), default=-1)

    def _look(self) -> None:
        for direction, end in self.ends.items():
            self.ended[direction].update(ended(end))


KEYS = st.builds(TransferKey, st.integers(0, 1), st.integers(0, LATEST_ROUND))
DIRECTIONS = st.sampled_from(list(Direction))
STEPS = st.one_of(
    st.tuples(st.just(Meeting.post), DIRECTIONS, KEYS),
    st.tuples(st.just(Meeting.cancel), DIRECTIONS, KEYS),
    st.tuples(st.just(Meeting.carry), DIRECTIONS, st.floats(0, 1)),
)


@settings(max_examples=300)
@given(steps=st.lists(STEPS, max_size=40), is_greeted=st.booleans())
def test_nobody_waits_in_vain_and_nobody_who_is_waited_for_gives_up(
    steps: list[tuple[object, ...]], is_greeted: bool
) -> None:
    meeting = Meeting()
    if is_greeted:
        talk(meeting.ends[Direction.SEND], meeting.ends[Direction.RECEIVE])
    for do, *what in steps:
        assert callable(do)
        do(meeting, *what)
    for _ in range(10):
        for direction in Direction:
            meeting.carry(direction, 1.0)
    assert not any(end.is_over for end in meeting.ends.values())
    for direction, other in (tuple(Direction), tuple(Direction)[::-1]):
        for key in meeting.posted[direction]:
            is_open = key not in meeting.ended[direction]
            if key in meeting.cancelled:
                assert not is_open
            elif key in meeting.posted[other]:
                assert is_open, f"{direction} {key}: {meeting.ended[direction][key]}"
            else:
                assert is_open == (key.round_number > meeting.last(other, key.tensor)), f"{direction} {key}"
