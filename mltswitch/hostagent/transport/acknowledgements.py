"""What the peer says of our data packets, as the rate and the sprayer are told."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mltswitch.hostagent.transport.datagrams import ACKNOWLEDGEMENT_DTYPE
from mltswitch.hostagent.transport.intake import Group
from mltswitch.hostagent.transport.interfaces import RateController, Sprayer

_MODULO: Final = 1 << 32
_HALF: Final = 1 << 31


class Acknowledgements:
    """Those that were read together: every round trip counts, and the last word of each call.

    Packets that left with one call carry one time, which each of their acknowledgements echoes, with counts
    that grow. A sender that was busy finds dozens of a call; the one that counts most says what all of them
    said. Those of other calls must be told, too: until a call is acknowledged as a whole, packets seem to be
    missing, and a sprayer believes the least.
    """

    def __init__(self, rate: RateController, longest_round_trip_ns: int) -> None:
        self._rate = rate
        self._longest_round_trip_ns = longest_round_trip_ns
        self._words: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Of each time echoed, and path: packets received, packets marked, round trip."""

    def add(self, path: int, arrived_ns: int, answer: Sequence[int], now_ns: int) -> None:
        """One; `answer` is its body: echoed and held times, packets received and marked."""
        echoed_ns, held_ns, received, marked = answer
        round_trip_ns = arrived_ns - echoed_ns - held_ns
        if 0 < round_trip_ns <= self._longest_round_trip_ns:
            self._rate.acknowledged(round_trip_ns, now_ns)
        call = echoed_ns, path
        known = self._words.get(call)
        if known is None or (received - known[0]) % _MODULO < _HALF:
            self._words[call] = received, marked, round_trip_ns

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
        """Hand them to the sprayer, in the order in which the calls left; nothing is kept."""
        words, self._words = self._words, {}
        if sprayer is not None:
            for (echoed_ns, path), (received, marked, round_trip_ns) in sorted(words.items()):
                sprayer.acknowledged(path, echoed_ns, received, marked, round_trip_ns, now_ns)
