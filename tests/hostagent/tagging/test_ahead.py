"""Marks found ahead are the same marks, whoever finds them and in whatever turn."""

import gc
import threading
import weakref
from functools import partial
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.hostagent.tagging.ahead import LEAST_BYTES, SLICE_BYTES, AheadMarking, MarkingThread
from mltswitch.hostagent.tagging.magnitude import ByMagnitude, MagnitudeMarking
from mltswitch.hostagent.tensor import PacketLayout, TensorView
from mltswitch.wire import ElementType
from tests.hostagent.background import eventually
from tests.hostagent.tagging.tensors import tensor_of


def layout_of(size_bytes: int) -> PacketLayout:
    return PacketLayout.fitting(ElementType.FLOAT32, size_bytes // 4, 1432)


LARGE = layout_of(LEAST_BYTES + SLICE_BYTES + 4)
"""Four slices, the last of them short, and a last packet that is shorter than the others."""
TENSOR = tensor_of(np.random.default_rng(4).normal(size=LARGE.element_count), ElementType.FLOAT32)
EXPECTED = ByMagnitude().mark(TENSOR, LARGE).important(0, LARGE.packet_count)


class Counting:
    """Says that all odd packets are important, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        self.asked.append((first, last))
        assert self.may_answer.wait(5)
        return np.array([place % 2 == 1 for place in range(first, last)], np.bool_)


def counting() -> tuple[Counting, AheadMarking]:
    source = Counting()
    return source, AheadMarking(cast("MagnitudeMarking", source), LARGE)


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 5000), st.integers(0, 3000))), max_size=12))
def test_whoever_finds_them(turns: list[tuple[int, int] | None]) -> None:
    """None: the thread's turn; else somebody asks for so many from there on."""
    _, marking = counting()
    for turn in turns:
        if turn is None:
            marking.find_some()
            continue
        first = min(turn[0], LARGE.packet_count - 1)
        last = min(first + turn[1], LARGE.packet_count)
        assert marking.important(first, last).tolist() == [place % 2 == 1 for place in range(first, last)]


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=10))
def test_in_turn_nothing_is_looked_at_twice(steps: list[int]) -> None:
    source, marking = counting()
    first = 0
    for number, step in enumerate(steps):
        if number % 2:
            marking.find_some()
        last = min(first + step, LARGE.packet_count)
        marking.important(first, last)
        first = last
    while marking.find_some():
        pass
    ends = [0] + [last for asked_first, last in source.asked if asked_first < last]
    assert [asked_first for asked_first, last in source.asked if asked_first < last] == ends[:-1]
    assert ends[-1] == LARGE.packet_count


def test_a_part_that_is_being_found_is_waited_for() -> None:
    source, marking = counting()
    source.may_answer.clear()
    thread = threading.Thread(target=marking.find_some)
    thread.start()
    eventually(lambda: bool(source.asked))
    found: list[NDArray[np.bool_]] = []
    asker = threading.Thread(target=lambda: found.append(marking.important(0, 10)))
    asker.start()
    assert not found
    source.may_answer.set()
    thread.join(5)
    asker.join(5)
    assert found[0].tolist() == [False, True] * 5
    assert len(source.asked) == 1


def is_found(marking: AheadMarking) -> bool:
    return marking._next == LARGE.packet_count


def test_a_thread_finds_those_of_large_tensors() -> None:
    thread = MarkingThread()
    policy = thread.ahead(ByMagnitude())
    small = layout_of(LEAST_BYTES - 4)
    view = TensorView(TENSOR.data[: small.size_bytes], ElementType.FLOAT32)
    assert isinstance(policy.mark(view, small), MagnitudeMarking)
    several = [policy.mark(TENSOR, LARGE) for _ in range(3)]
    for marking in several:
        assert isinstance(marking, AheadMarking)
        eventually(partial(is_found, marking))
        assert np.array_equal(marking.important(0, LARGE.packet_count), EXPECTED)
    thread.close()


def test_what_goes_wrong_is_told_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(first: int, last: int) -> NDArray[np.bool_]:
        raise MemoryError(f"{first} to {last}")

    source, marking = counting()
    monkeypatch.setattr(source, "important", fails)
    assert not marking.find_some()
    with pytest.raises(MemoryError, match="0 to "):
        marking.important(0, 10)


def test_nothing_is_looked_at_after_the_last_who_could_ask_or_the_end() -> None:
    thread = MarkingThread()
    source, marking = counting()
    source.may_answer.clear()
    thread.begin(marking)
    eventually(lambda: bool(source.asked))
    other_source, other = counting()
    thread.begin(other)
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    closing = threading.Thread(target=thread.close)
    closing.start()
    eventually(lambda: thread._should_stop)
    source.may_answer.set()
    closing.join(5)
    assert not closing.is_alive()
    assert len(source.asked) == 1
    assert not other_source.asked


def test_at_the_end_nobody_looks_any_more() -> None:
    source, marking = counting()
    source.may_answer.clear()
    thread = MarkingThread()
    thread.begin(marking)
    eventually(lambda: bool(source.asked))
    ending = threading.Thread(target=marking.look_no_more)
    ending.start()
    eventually(lambda: marking._next == LARGE.packet_count)
    assert ending.is_alive()  # a slice is being looked at
    source.may_answer.set()
    ending.join(5)
    assert not ending.is_alive()
    assert len(source.asked) == 1
    thread.close()
    assert len(source.asked) == 1


def test_without_a_thread_who_asks_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    thread = MarkingThread()
    source, marking = counting()
    thread.begin(marking)
    assert not source.asked
    assert marking.important(0, 4).tolist() == [False, True] * 2
    thread.close()
