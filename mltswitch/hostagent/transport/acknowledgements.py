"""What the peer says of our data packets: every round trip counts, and of each path the newest word."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mltswitch.hostagent.transport.datagrams import ACKNOWLEDGEMENT_DTYPE
from mltswitch.hostagent.transport.intake import Group
from mltswitch.hostagent.transport.interfaces import RateController, Sprayer


class Acknowledgements:
    """Those that were read together.

    Their counts are cumulative: the newest of a path says all that the others said, and a sender that was
    busy finds dozens.
    """

    def __init__(self, rate: RateController, longest_round_trip_ns: int) -> None:
        self._rate = rate
        self._longest_round_trip_ns = longest_round_trip_ns
        self._newest: dict[int, tuple[int, int, int, int]] = {}
        """Of each path: time echoed, packets received, packets marked, round trip."""

    def add(self, path: int, arrived_ns: int, answer: Sequence[int], now_ns: int) -> None:
        """One; `answer` is its body: echoed and held times, packets received and marked."""
        echoed_ns, held_ns, received, marked = answer
        round_trip_ns = arrived_ns - echoed_ns - held_ns
        if 0 < round_trip_ns <= self._longest_round_trip_ns:
            self._rate.acknowledged(round_trip_ns, now_ns)
        newest = self._newest.get(path)
        if newest is None or echoed_ns >= newest[0]:
            self._newest[path] = (echoed_ns, received, marked, round_trip_ns)

    def add_group(self, group: Group, now_ns: int) -> int:
        """All of a group; how many of them were none."""
        false_ones = 0
        for part in group.parts:
            if part.body_bytes != ACKNOWLEDGEMENT_DTYPE.itemsize:
                false_ones += part.place.stop - part.place.start
                continue
            bodies = np.ascontiguousarray(part.bodies()).view(ACKNOWLEDGEMENT_DTYPE)
            answers: Any = bodies.reshape(-1).tolist()
            paths, arrivals_ns = group.paths[part.place].tolist(), group.arrived_ns[part.place].tolist()
            for path, arrived_ns, answer in zip(paths, arrivals_ns, answers, strict=True):
                self.add(path, arrived_ns, answer, now_ns)
        return false_ones

    def tell(self, sprayer: Sprayer | None, now_ns: int) -> None:
        """Hand them to the sprayer, one a path; nothing is kept."""
        newest, self._newest = self._newest, {}
        if sprayer is not None:
            for path, (echoed_ns, received, marked, round_trip_ns) in newest.items():
                sprayer.acknowledged(path, echoed_ns, received, marked, round_trip_ns, now_ns)
