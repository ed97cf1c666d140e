"""Counts what arrives of one run."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from mltswitch.hostagent.doctor.datagrams import Datagram
from mltswitch.hostagent.doctor.messages import PathSeen, Run

_MAXIMUM_PAIRS: Final = 4096
"""Of bytes as sent and as received, of one path; as many as a message holds."""


class _PathTally:
    def __init__(self) -> None:
        self.sequences: set[int] = set()
        self.doubled = 0
        self.misdirected = 0
        self.traffic_bytes: Counter[tuple[int, int]] = Counter()
        self.sizes: Counter[int] = Counter()


class Tally:
    """Of one run; what does not belong to it is not counted."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._paths = {path: _PathTally() for path in run.paths}
        self._traffic_bytes, self._sizes = set(run.traffic_bytes), set(run.payload_bytes)

    def add(self, datagram: Datagram, received_at: int, received_byte: int, size_bytes: int) -> bool:
        """Whether it is the first of its number; `received_at` is the path whose address it came to."""
        path = self._paths.get(datagram.path)
        is_ours = (
            path is not None
            and datagram.run == self.run.number
            and datagram.sequence < self.run.datagrams_per_path
            and datagram.traffic_byte in self._traffic_bytes
            and size_bytes in self._sizes
        )
        if path is None or not is_ours:
            return False
        if datagram.sequence in path.sequences:
            path.doubled += 1
            return False
        path.sequences.add(datagram.sequence)
        if datagram.path != received_at:
            path.misdirected += 1
        path.sizes[size_bytes] += 1
        path.traffic_bytes[datagram.traffic_byte, received_byte] += 1
        return True

    def holds(self, sent: Mapping[int, int]) -> bool:
        """Whether everything has arrived of so many sent, by path."""
        return all(len(path.sequences) >= sent.get(number, 0) for number, path in self._paths.items())

    def result(self, dropped_by_host: Mapping[int, int]) -> tuple[PathSeen, ...]:
        """By path."""
        return tuple(
            PathSeen(
                path=number,
                arrived=len(path.sequences),
                doubled=path.doubled,
                misdirected=path.misdirected,
                traffic_bytes=tuple(
                    (sent, received, count)
                    for (sent, received), count in path.traffic_bytes.most_common(_MAXIMUM_PAIRS)
                ),
                sizes=tuple(sorted(path.sizes.items())),
                dropped_by_host=dropped_by_host.get(number, 0),
            )
            for number, path in self._paths.items()
        )
