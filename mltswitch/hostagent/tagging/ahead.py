"""Importance by magnitude, found by a thread of its own before it is asked for.

Magnitudes cost a pass over the whole tensor, a third of what the kernel takes to send it. Where the host has
a second processor, the thread that sends need not make that pass.
"""

import os
import queue
import threading
import weakref
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tagging.magnitude import ByMagnitude, MagnitudeMarking
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView

LEAST_BYTES: Final = 4 << 20
"""Of a tensor: smaller ones have left before another thread is awake."""
SLICE_BYTES: Final = 2 << 20
"""Found at once: whoever needs a part that is being found waits no longer than for so much."""


class AheadMarking:
    """Marks of one tensor, found by whoever comes first: the thread, from front to back, or the asker."""

    def __init__(self, marking: MagnitudeMarking, layout: PacketLayout) -> None:
        self._marking = marking
        self._slice_packets = max(1, SLICE_BYTES // layout.full_bytes)
        self._important = np.zeros(layout.packet_count, np.bool_)
        self._changed = threading.Condition()
        self._next = 0
        """Packets before it are found, or being found."""
        self._being_found = range(0)
        """By the thread."""
        self._error: Exception | None = None

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        """Of packets `first` to `last` - 1, shape (packets,)."""
        with self._changed:
            is_out_of_turn = first > self._next
            ours = range(first if is_out_of_turn else self._next, last)
            if not is_out_of_turn:  # what lies between stays the thread's
                self._next = max(self._next, last)
            self._changed.wait_for(lambda: self._being_found.stop <= first or self._being_found.start >= last)
            if self._error is not None:
                raise self._error
        if ours:
            self._important[ours.start : ours.stop] = self._marking.important(ours.start, ours.stop)
        return self._important[first:last]

    def look_no_more(self) -> None:
        """The tensor is the user's again: the thread does not look at it any more when this returns."""
        with self._changed:
            self._next = len(self._important)
            self._changed.wait_for(lambda: not self._being_found)

    def find_some(self) -> bool:
        """The thread's part; whether there is more of it."""
        with self._changed:
            first = self._next
            last = self._next = max(first, min(first + self._slice_packets, len(self._important)))
            self._being_found = range(first, last)
        if first == last:
            return False
        try:
            self._important[first:last] = self._marking.important(first, last)
        except Exception as error:  # noqa: BLE001  (whatever it is, whoever asks is told)
            self._error = error
        with self._changed:
            self._being_found = range(0)
            self._changed.notify_all()
        return self._error is None and last < len(self._important)


class MarkingThread:
    """Of one agent; works for as long as somebody waits for marks."""

    def __init__(self) -> None:
        self._markings: queue.SimpleQueue[weakref.ref[AheadMarking] | None] = queue.SimpleQueue()
        self._should_stop = False
        self._thread: threading.Thread | None = None

    def ahead(self, policy: ByMagnitude) -> "ByMagnitudeAhead":
        """The same policy, whose tensors are looked at here."""
        return ByMagnitudeAhead(policy, self)

    def begin(self, marking: AheadMarking) -> None:
        """Find its marks, after those of others that came before; forgotten with the last who could ask."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="agent marking", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process may have no more threads: who asks finds the marks
                return
            self._thread = thread
        self._markings.put(weakref.ref(marking))

    def close(self) -> None:
        """No tensor is looked at any more when it returns."""
        self._should_stop = True
        self._markings.put(None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (reference := self._markings.get()) is not None:
            has_more = True
            while has_more and not self._should_stop:
                marking = reference()
                has_more = marking is not None and marking.find_some()
                del marking  # its tensor may end meanwhile


@dataclass(frozen=True, slots=True)
class ByMagnitudeAhead:
    """`ByMagnitude` with a thread that finds what is important."""

    policy: ByMagnitude
    thread: MarkingThread

    def mark(self, tensor: TensorView, layout: PacketLayout) -> MagnitudeMarking | AheadMarking:
        """Sample the tensor, and begin."""
        marking = self.policy.mark(tensor, layout)
        if layout.size_bytes < LEAST_BYTES:
            return marking
        ahead = AheadMarking(marking, layout)
        self.thread.begin(ahead)
        return ahead


def has_processors_to_spare() -> bool:
    """Whether a second thread can run while the first does."""
    return len(os.sched_getaffinity(0)) > 1
