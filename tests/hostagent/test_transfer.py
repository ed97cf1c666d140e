"""What becomes of a post: whole or within its bounds, in time or not, cancelled, awaited, forgotten."""

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent import (
    Agent,
    AgentError,
    CancelledError,
    Completion,
    CompletionQueue,
    DeadlineExceededError,
    ReceiveRequest,
    SendRequest,
    TooManyTransfersError,
    TransferMismatchError,
)
from mltswitch.hostagent.transfer import Transfer
from mltswitch.hostagent.transport.records import Direction
from tests.hostagent.background import eventually, in_background
from tests.hostagent.ends import (
    PATIENCE_SECONDS,
    RECEIVER,
    SENDER,
    SLOW,
    Make,
    Notes,
    exchange,
    joined,
    values,
)

TYPES = ["float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint16", "bool"]
_tensors = iter(range(10**6))
over_both = pytest.mark.parametrize("pair", ["mlt", "tcp"], indirect=True)


@given(name=st.sampled_from(TYPES), count=st.integers(1, 70_000), round_number=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_every_type_and_size_arrives_whole(
    lasting_pair: tuple[Agent, Agent], name: str, count: int, round_number: int
) -> None:
    original = np.random.default_rng(count).integers(1, 255, count * np.dtype(name).itemsize, np.uint8)
    original = (original % 2).view(name) if name == "bool" else original.view(name)
    buffer = np.zeros_like(original)
    sender, receiver = lasting_pair
    tensor = next(_tensors)
    there = receiver.post_receive(SENDER, buffer, tensor=tensor, round_number=round_number)
    here = sender.post_send(RECEIVER, original, tensor=tensor, round_number=round_number)
    received, sent = there.wait(PATIENCE_SECONDS), here.wait(PATIENCE_SECONDS)
    assert buffer.tobytes() == original.tobytes()
    for completion in (received, sent):
        assert completion.arrived.all()
        assert completion.missing == []
        assert completion.statistics.packets == len(completion.arrived)
    assert received.statistics.size_bytes == original.nbytes
    assert received.statistics.bytes_received >= original.nbytes
    assert sent.statistics.packets_sent >= sent.statistics.packets
    assert sum(sent.statistics.packets_by_path) == sent.statistics.packets_sent
    times = received.statistics
    assert 0 < times.posted_ns <= times.first_ns <= times.last_ns <= times.ended_ns
    assert times.goodput_bps > 0


@over_both
def test_a_sender_may_come_first_and_many_are_on_their_way(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    originals = [values(1 + 700 * number, number) for number in range(100)]
    sends = sender.post_sends(
        RECEIVER, [SendRequest(data=data, tensor=n, layer=100 - n) for n, data in enumerate(originals)]
    )
    buffers = [np.empty_like(original) for original in originals]
    receives = receiver.post_receives(
        SENDER, [ReceiveRequest(buffer=buffer, tensor=n) for n, buffer in enumerate(buffers)]
    )
    for transfer in (*sends, *receives):
        transfer.wait(PATIENCE_SECONDS)
    for original, buffer in zip(originals, buffers, strict=True):
        assert (original == buffer).all()


def test_all_to_all_several_rounds_at_once(make: Make) -> None:
    names = ["a", "b", "c"]
    agents = {name: make(name) for name in names}
    for one in names:
        for other in names:
            if one < other:
                agents[one].connect(other, agents[other].listening_at)
    for name, agent in agents.items():
        agent.wait_for_peers(set(names) - {name})
    waits, pairs = [], []
    for number in range(6):
        for one in names:
            for other in set(names) - {one}:
                original, buffer = values(3000 + number, ord(one)), np.empty(3000 + number, np.float32)
                waits.append(agents[other].post_receive(one, buffer, tensor=3, round_number=number))
                waits.append(agents[one].post_send(other, original, tensor=3, round_number=number))
                pairs.append((original, buffer))
    for transfer in waits:
        transfer.wait(PATIENCE_SECONDS)
    assert all((original == buffer).all() for original, buffer in pairs)


# Bounds


@over_both
def test_a_bound_is_permission_and_costs_nothing_without_loss(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    original, buffer = values(), np.zeros(100_003, np.float32)
    there = receiver.post_receive(SENDER, buffer, tensor=1, loss_bound=0.5)
    sender.post_send(RECEIVER, original, tensor=1)
    assert there.wait(PATIENCE_SECONDS).missing == []
    assert (buffer == original).all()


@pytest.mark.parametrize("keep_missing", [False, True])
def test_the_papers_rule_stops_as_soon_as_the_bound_is_met(make: Make, keep_missing: bool) -> None:
    sender, receiver = joined(make, **SLOW)
    original, buffer = values(250_000), np.full(250_000, 7, np.float32)
    there = receiver.post_receive(
        SENDER, buffer, tensor=1, loss_bound=0.4, stop="paper", keep_missing=keep_missing
    )
    here = sender.post_send(RECEIVER, original, tensor=1)
    received, sent = there.wait(PATIENCE_SECONDS), here.wait(PATIENCE_SECONDS)
    missing = np.zeros(250_000, bool)
    for first, end in received.missing:
        missing[first:end] = True
    assert 0 < missing.mean() <= 0.4
    assert (buffer[~missing] == original[~missing]).all()
    assert (buffer[missing] == (7 if keep_missing else 0)).all()
    assert sent.missing == received.missing
    assert sent.statistics.packets_sent < sent.statistics.packets
    assert received.statistics.missing_share == pytest.approx(1 - received.arrived.mean())


def test_after_the_soft_time_the_bounds_are_enough(make: Make) -> None:
    sender, receiver = joined(make, **SLOW)
    there = receiver.post_receive(
        SENDER, np.zeros(2_000_000, np.float32), tensor=1, loss_bound=0.99, important_loss_bound=1.0,
        soft_seconds=0.2,
    )  # fmt: skip
    here = sender.post_send(RECEIVER, values(2_000_000), tensor=1)
    received = there.wait(PATIENCE_SECONDS)
    assert received.missing
    assert here.wait(PATIENCE_SECONDS).missing == received.missing


def test_a_receive_can_be_finished_and_tells_its_progress(make: Make) -> None:
    sender, receiver = joined(make, **SLOW)
    there = receiver.post_receive(SENDER, np.zeros(2_000_000, np.float32), tensor=1)
    assert there.progress.packets_received == 0
    here = sender.post_send(RECEIVER, values(2_000_000), tensor=1, importance="all")
    eventually(lambda: there.progress.packets_received > 10)
    assert there.completion is None
    assert here.progress.packets == there.progress.packets
    with pytest.raises(UserInputError, match="only a receive"):
        here.finish()
    there.finish()
    received = there.wait(PATIENCE_SECONDS)
    assert 10 < received.statistics.packets_received < received.statistics.packets
    assert there.progress.packets_received == received.statistics.packets_received
    assert here.wait(PATIENCE_SECONDS).missing == received.missing
    there.finish()  # nothing happens any more
    there.cancel()


# Deadlines


def test_a_deadline_says_how_much_had_arrived_and_whether_paths_answer(make: Make) -> None:
    sender, receiver = joined(make, **SLOW)
    there = receiver.post_receive(SENDER, np.zeros(2_000_000, np.float32), tensor=1, deadline_seconds=0.5)
    here = sender.post_send(RECEIVER, values(2_000_000), tensor=1, round_number=0)
    with pytest.raises(
        DeadlineExceededError,
        match=r"^peer worker, tensor 1, round 0: not complete in time: \d+ of \d+ packets had arrived;"
        r" peer last heard \d+ ms ago, 1 of 1 used paths answer$",
    ):
        there.wait(PATIENCE_SECONDS)
    with pytest.raises(DeadlineExceededError, match=r"peer server, tensor 1.* the peer's time for it was up"):
        here.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("direction", Direction)
def test_a_deadline_says_that_the_peer_has_not_posted(
    pair: tuple[Agent, Agent], direction: Direction
) -> None:
    sender, receiver = pair
    if direction is Direction.SEND:
        alone = sender.post_send(RECEIVER, values(10), tensor=5, deadline_seconds=0.1)
        what = "memory"
    else:
        alone = receiver.post_receive(SENDER, values(10), tensor=5, deadline_seconds=0.1)
        what = "tensor"
    with pytest.raises(DeadlineExceededError, match=f"the peer has not posted its {what}"):
        alone.wait(PATIENCE_SECONDS)
    exchange(sender, receiver, tensor=5, round_number=1)


def test_at_its_deadline_a_receive_may_take_what_is_there(make: Make) -> None:
    sender, receiver = joined(make, **SLOW)
    buffer, original = np.zeros(2_000_000, np.float32), values(2_000_000)
    there = receiver.post_receive(SENDER, buffer, tensor=1, deadline_seconds=0.5, at_deadline="take")
    here = sender.post_send(RECEIVER, original, tensor=1)
    received = there.wait(PATIENCE_SECONDS)
    assert received.error is None
    assert 0 < received.arrived.mean() < 1
    assert here.wait(PATIENCE_SECONDS).missing == received.missing
    nothing = receiver.post_receive(SENDER, buffer, tensor=2, deadline_seconds=0.1, at_deadline="take")
    assert nothing.wait(PATIENCE_SECONDS).missing == [(0, 2_000_000)]
    assert not buffer.any()


@pytest.mark.parametrize("moment", ["peer-ready", "first-byte"])
def test_memory_can_be_posted_long_ahead(pair: tuple[Agent, Agent], moment: str) -> None:
    sender, receiver = pair
    with pytest.raises(DeadlineExceededError, match="has not ended within 0"):
        receiver.post_receive(SENDER, values(9), tensor=9).wait(0)
    ahead = receiver.post_receive(
        SENDER, np.zeros(10, np.float32), tensor=1, deadline_seconds=0.2, deadline_from=moment
    )
    from_post = receiver.post_receive(SENDER, np.zeros(10, np.float32), tensor=2, deadline_seconds=0.2)
    with pytest.raises(DeadlineExceededError):
        from_post.wait(PATIENCE_SECONDS)
    time.sleep(0.1)
    assert ahead.completion is None
    sender.post_send(RECEIVER, values(10), tensor=1)
    assert ahead.wait(PATIENCE_SECONDS).error is None
    sent = sender.post_send(
        RECEIVER, values(10), tensor=3, deadline_seconds=0.05, deadline_from=moment
    )  # the receiver is not ready
    time.sleep(0.2)
    receiver.post_receive(SENDER, np.zeros(10, np.float32), tensor=3)
    assert sent.wait(PATIENCE_SECONDS).error is None


@pytest.mark.parametrize("who", Direction)
def test_a_cancel_reaches_the_other_end_with_its_reason(make: Make, who: Direction) -> None:
    sender, receiver = joined(make, **SLOW)
    here = sender.post_send(RECEIVER, values(2_000_000), tensor=1)
    there = receiver.post_receive(SENDER, np.zeros(2_000_000, np.float32), tensor=1)
    eventually(lambda: there.progress.packets_received > 10)
    one, other = (here, there) if who is Direction.SEND else (there, here)
    one.cancel("the step \x1b[31mwas skipped")
    with pytest.raises(CancelledError, match=r"the step \?\[31mwas skipped"):
        one.wait(PATIENCE_SECONDS)
    with pytest.raises(CancelledError, match=r"the peer gave it up: the step \?\[31mwas skipped"):
        other.wait(PATIENCE_SECONDS)
    exchange(sender, receiver, tensor=1, round_number=1)


@pytest.mark.parametrize(
    ("pair", "how"),
    [*product(["mlt", "tcp"], ["finish", "take"]), ("mlt", "cancel"), ("mlt", "deadline")],
    indirect=["pair"],
)
def test_a_send_that_comes_after_its_receive_ends_at_once(pair: tuple[Agent, Agent], how: str) -> None:
    sender, receiver = pair
    at_deadline: dict[str, Any] = {"deadline_seconds": 0.05, "at_deadline": how}
    at_deadline["at_deadline"] = "take" if how == "take" else "fail"
    there = receiver.post_receive(
        SENDER, np.ones(10, np.float32), tensor=1, **(at_deadline if how in {"take", "deadline"} else {})
    )
    if how == "finish":
        there.finish()
    elif how == "cancel":
        there.cancel("the step was skipped")
    eventually(lambda: there.completion is not None)
    late = sender.post_send(RECEIVER, values(10), tensor=1)
    if how in {"finish", "take"}:
        assert late.wait(PATIENCE_SECONDS / 2).missing == [(0, 10)]
    else:
        kind, what = {
            "cancel": (CancelledError, "the peer gave it up: the step was skipped"),
            "deadline": (DeadlineExceededError, "the peer's time for it was up"),
        }[how]
        with pytest.raises(kind, match=f"^peer server, tensor 1, round 0: {what}"):
            late.wait(PATIENCE_SECONDS / 2)
    exchange(sender, receiver, tensor=1)


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_receive_that_comes_after_its_send_has_failed_hears_so_at_once(
    pair: tuple[Agent, Agent], how: str
) -> None:
    sender, receiver = pair

    def fail_a_send() -> None:
        gone = sender.post_send(
            RECEIVER, values(10), tensor=1, deadline_seconds=0.05 if how == "deadline" else None
        )
        if how == "cancel":
            gone.cancel("the step was skipped")
        eventually(lambda: gone.completion is not None)

    fail_a_send()
    kind, what = {
        "cancel": (CancelledError, "the peer gave it up: the step was skipped"),
        "deadline": (DeadlineExceededError, "the peer's time for it was up"),
    }[how]
    with pytest.raises(kind, match=f"^peer worker, tensor 1, round 0: {what}"):
        receiver.post_receive(SENDER, np.zeros(10, np.float32), tensor=1).wait(PATIENCE_SECONDS / 2)
    exchange(sender, receiver, tensor=1)
    fail_a_send()
    again = sender.post_send(RECEIVER, values(10), tensor=1)  # takes its place
    receiver.post_receive(SENDER, np.zeros(10, np.float32), tensor=1).wait(PATIENCE_SECONDS / 2)
    assert again.wait(PATIENCE_SECONDS).missing == []


@over_both
@pytest.mark.parametrize("buffer", [np.zeros(11, np.float32), np.zeros(10, np.int32)])
def test_ends_that_disagree_both_hear_so(pair: tuple[Agent, Agent], buffer: Any) -> None:
    sender, receiver = pair
    there = receiver.post_receive(SENDER, buffer, tensor=1)
    here = sender.post_send(RECEIVER, values(10), tensor=1)
    said = "tensor 1, round 0: (the ends name different|.*the sender has 10 elements of float32)"
    for transfer in (here, there):
        with pytest.raises(TransferMismatchError, match=said):
            transfer.wait(PATIENCE_SECONDS)
    exchange(sender, receiver, tensor=1, round_number=1)


def test_a_tensor_is_on_its_way_once_a_round(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    first, second = (receiver.post_receive(SENDER, np.zeros(10, np.float32), tensor=1) for _ in range(2))
    with pytest.raises(TooManyTransfersError, match="on its way in this round already"):
        second.wait(PATIENCE_SECONDS)
    sender.post_send(RECEIVER, values(10), tensor=1).wait(PATIENCE_SECONDS)
    first.wait(PATIENCE_SECONDS)
    for _ in range(3):  # once it is over, the same round may come again
        exchange(sender, receiver, tensor=1)


BOTH, SENDS, RECEIVES = ("send", "receive"), ("send",), ("receive",)


@pytest.mark.parametrize(
    ("directions", "options", "message"),
    [
        (BOTH, {"tensor": -1}, "tensor: -1 is no such number"),
        (BOTH, {"tensor": 2**32}, "tensor: 4294967296"),
        (BOTH, {"tensor": True}, "tensor: True"),
        (BOTH, {"round_number": 1.0}, "round_number: 1.0"),
        (BOTH, {"deadline_seconds": 0}, "deadline_seconds: 0 is no time"),
        (BOTH, {"deadline_seconds": float("nan")}, "deadline_seconds: nan"),
        (BOTH, {"deadline_from": "noon"}, "deadline_from: 'noon' is unknown .*peer-ready"),
        (BOTH, {"colour": 3}, "colour"),
        (RECEIVES, {"loss_bound": 1.1}, "loss_bound: 1.1 is no share"),
        (RECEIVES, {"loss_bound": "1"}, "loss_bound: '1' is no share"),
        (RECEIVES, {"important_loss_bound": -0.1}, "important_loss_bound: -0.1"),
        (RECEIVES, {"stop": "now"}, "stop: 'now' is unknown"),
        (RECEIVES, {"at_deadline": "cry"}, "at_deadline: 'cry' is unknown"),
        (RECEIVES, {"soft_seconds": -1}, "soft_seconds: -1"),
        (SENDS, {"dscp": 64}, "dscp: 64"),
        (SENDS, {"traffic_class": "gold"}, "'gold'"),
        (SENDS, {"layer": "conv1"}, "conv1"),
        (SENDS, {"importance": "luck"}, "importance: 'luck' is no policy"),
    ],
)
def test_posts_that_cannot_be(
    pair: tuple[Agent, Agent], directions: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    for direction in directions:
        with pytest.raises((UserInputError, TypeError), match=message):
            getattr(pair[0], f"post_{direction}")(RECEIVER, values(10), **{"tensor": 1} | options)


def test_of_a_bucket_all_begin_or_none(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    for bad in ([SendRequest(data=values(9), tensor=1), SendRequest(data=values(9), tensor=-2)], []):
        with pytest.raises(UserInputError):
            sender.post_sends(RECEIVER, bad)
    assert sender.snapshot().peers[RECEIVER]["default"].open_transfers == 0
    exchange(sender, receiver, tensor=1)


def test_no_more_transfers_than_there_may_be(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    buffer = bytearray(1)
    many = [ReceiveRequest(buffer=buffer, tensor=number) for number in range(65_537)]
    with pytest.raises(TooManyTransfersError, match="more transfers are open"):
        receiver.post_receives(SENDER, many)
    exchange(sender, receiver, tensor=1)


# Whoever is told


def test_a_queue_is_told_of_posts_that_name_it_alone(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    own = CompletionQueue()
    exchange(sender, receiver, tensor=1)
    exchange(sender, receiver, tensor=2, completions=own)
    exchange(sender, receiver, tensor=3, completions=sender.completions)
    gone = sender.post_receive(RECEIVER, values(10), tensor=4, deadline_seconds=0.05, completions=own)
    told = [own.poll(PATIENCE_SECONDS) for _ in range(2)]
    assert [entry.tensor for entry in told if entry] == [2, 4]
    assert [entry.error is None for entry in told if entry] == [True, False]
    assert gone.completion is told[1]
    polled = sender.poll(PATIENCE_SECONDS)
    assert polled is not None
    assert polled.tensor == 3
    assert own.poll() is sender.poll() is receiver.poll() is None


def test_who_polls_is_told_when_the_agent_ends(make: Make) -> None:
    _, receiver = joined(make)
    receiver.post_receive(SENDER, values(10), tensor=1, completions=receiver.completions)
    with in_background(receiver.poll, PATIENCE_SECONDS) as polled:
        receiver.close()
        ended = polled()
    assert ended is not None
    assert ended.error is not None
    assert [receiver.poll(PATIENCE_SECONDS) for _ in range(3)] == [None] * 3


def test_transfers_can_be_awaited(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair

    async def many() -> list[Completion]:
        waits = [receiver.post_receive(SENDER, np.zeros(9, np.float32), tensor=n) for n in range(50)]
        waits += [sender.post_send(RECEIVER, values(9), tensor=n) for n in range(50)]
        found = await asyncio.wait_for(asyncio.gather(*waits), PATIENCE_SECONDS)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receiver.post_receive(SENDER, values(9), tensor=77), 0.01)
        late = receiver.post_receive(SENDER, values(9), tensor=78, deadline_seconds=0.05)
        with pytest.raises(DeadlineExceededError, match="tensor 78"):
            await late
        with pytest.raises(DeadlineExceededError, match="tensor 78"):  # and once more, when it has ended
            await late
        return found

    assert all(entry.error is None for entry in asyncio.run(many()))


@pytest.mark.parametrize("is_observed", [False, True])
def test_several_threads_may_wait_for_one(pair: tuple[Agent, Agent], is_observed: bool) -> None:
    sender, receiver = pair
    if is_observed:
        receiver.observe(Notes())
    with ThreadPoolExecutor(4) as pool:
        for number in range(200):
            there = receiver.post_receive(SENDER, np.zeros(9, np.float32), tensor=1, round_number=number)
            waits = [pool.submit(there.wait, PATIENCE_SECONDS) for _ in range(4)]
            sender.post_send(RECEIVER, values(9), tensor=1, round_number=number)
            assert len({id(entry.result(PATIENCE_SECONDS)) for entry in waits}) == 1


@over_both
def test_callbacks_are_called_once_and_may_raise(
    pair: tuple[Agent, Agent], caplog: pytest.LogCaptureFixture
) -> None:
    sender, receiver = pair
    called: list[str] = []
    told = threading.Event()

    def fail() -> None:
        called.append(threading.current_thread().name)
        raise ValueError("of the user's")

    there = receiver.post_receive(SENDER, np.zeros(9, np.float32), tensor=1)
    there.add_done_callback(fail)
    there.add_done_callback(told.set)
    sender.post_send(RECEIVER, values(9), tensor=1)
    assert told.wait(PATIENCE_SECONDS)
    there.add_done_callback(fail)
    assert there.wait(0).error is None
    assert len(called) == 2
    assert called[1] == threading.current_thread().name
    assert caplog.text.count("has failed") == 2
    exchange(sender, receiver, tensor=1, round_number=1)


def test_a_callback_may_post_but_not_wait(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    found: list[Any] = []
    never = receiver.post_receive(SENDER, values(9), tensor=9)
    asks = [
        never.wait,
        receiver.close,
        lambda: receiver.connect("x", "127.0.0.1:9"),
        lambda: receiver.wait_for_peers([]),
        lambda: receiver.receive_message(SENDER),
        lambda: receiver.channel("new"),
        lambda: receiver.default.post_send("nobody", values(9), tensor=1),
    ]
    done = threading.Event()

    def ask() -> None:
        for call in asks:
            try:
                call()  # type: ignore[operator]
            except (UserInputError, AgentError) as error:
                found.append(error)
        found.append(receiver.post_send(SENDER, values(9), tensor=2))
        done.set()

    first = receiver.post_receive(SENDER, np.zeros(9, np.float32), tensor=1)
    first.add_done_callback(ask)
    sender.post_send(RECEIVER, values(9), tensor=1)
    assert done.wait(PATIENCE_SECONDS)
    *errors, posted = found
    assert ["would wait for itself" in str(error) for error in errors] == [True] * len(asks)
    sender.post_receive(RECEIVER, np.zeros(9, np.float32), tensor=2).wait(PATIENCE_SECONDS)
    assert posted.wait(PATIENCE_SECONDS).error is None


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_transfer_that_nobody_waits_for_frees_its_memory_and_its_place(
    pair: tuple[Agent, Agent], is_watched: bool
) -> None:
    sender, receiver = pair
    plane = receiver.default.connection(SENDER).plane.core  # type: ignore[attr-defined]
    held: list[weakref.ref[Any]] = []
    for number in range(20):
        buffer = np.zeros(5000, np.float32)
        held.append(weakref.ref(buffer))
        there = receiver.post_receive(SENDER, buffer, tensor=number)
        if is_watched:
            there.add_done_callback(gc.isenabled)
        sender.post_send(RECEIVER, values(5000), tensor=number)
        if number % 3 == 0:
            there.wait(PATIENCE_SECONDS)
        if number % 7 == 0:
            there.cancel()
    del buffer, there
    gc.collect()
    eventually(lambda: not any(entry() is not None for entry in held))
    assert not plane._memory
    ended = receiver.snapshot().ended[Direction.RECEIVE].results
    assert ended["completed"] + ended["cancelled"] == 20
    assert receiver.snapshot().peers[SENDER]["default"].open_transfers == 0


def test_an_error_keeps_no_memory_of_who_waits(pair: tuple[Agent, Agent]) -> None:
    held: list[weakref.ref[Any]] = []
    there = pair[1].post_receive(SENDER, bytearray(9), tensor=1, deadline_seconds=0.01)

    def wait() -> None:
        mine = np.zeros(3)
        held.append(weakref.ref(mine))
        with pytest.raises(DeadlineExceededError):
            there.wait(PATIENCE_SECONDS)

    gc.collect()
    gc.disable()
    try:
        wait()
        wait()
        assert [entry() for entry in held] == [None, None]
    finally:
        gc.enable()


class _Interrupting:
    """A ticket whose transfer is interrupted while it is made, once."""

    def __init__(self, request: Any) -> None:
        self._requests = iter([request])
        self.is_watched = False
        self.made = 0

    @property
    def request(self) -> Any:
        self.made += 1
        if self.made == 1:
            raise KeyboardInterrupt
        return next(self._requests)

    def notify(self, callback: Any) -> None:
        self.is_watched = callback is not None


def test_a_transfer_that_is_interrupted_while_it_is_made_is_watched(make: Make) -> None:
    request = cast(Any, SimpleNamespace(tensor=1, round_number=0, memory=SimpleNamespace(element_count=1)))
    ticket = _Interrupting(request)
    with pytest.raises(KeyboardInterrupt):
        Transfer(make(SENDER).engine, RECEIVER, "default", cast(Any, ticket), None)
    gc.collect()
    assert ticket.is_watched
