"""What is kept of rounds of tensors, which rise: what comes before one can be told to be over."""

from bisect import bisect_left, insort
from typing import Generic, TypeVar

from mltswitch.hostagent.transport.interfaces import TransferKey

Entry = TypeVar("Entry")


class ByRound(Generic[Entry]):
    """One entry a round."""

    def __init__(self) -> None:
        self._entries: dict[TransferKey, Entry] = {}
        self._rounds: dict[int, list[int]] = {}
        """Of each tensor, in order: mostly they are added so, and all are looked at only to be taken out."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: TransferKey, entry: Entry) -> None:
        """In the place of what was kept of the same round before."""
        if key not in self._entries:
            insort(self._rounds.setdefault(key.tensor, []), key.round_number)
        self._entries[key] = entry

    def pop(self, key: TransferKey) -> Entry | None:
        """None: there is none."""
        if key not in self._entries:
            return None
        rounds = self._rounds[key.tensor]
        del rounds[bisect_left(rounds, key.round_number)]
        if not rounds:
            del self._rounds[key.tensor]
        return self._entries.pop(key)

    def pop_earlier(self, key: TransferKey) -> list[tuple[TransferKey, Entry]]:
        """Rounds of the same tensor before this one, in order."""
        rounds = self._rounds.get(key.tensor, [])
        place = bisect_left(rounds, key.round_number)
        earlier = [TransferKey(key.tensor, number) for number in rounds[:place]]
        del rounds[:place]
        if not rounds:
            self._rounds.pop(key.tensor, None)
        return [(skipped, self._entries.pop(skipped)) for skipped in earlier]

    def clear(self) -> None:
        """Keep nothing."""
        self._entries.clear()
        self._rounds.clear()


class Latest:
    """The last round of each tensor that the peer is known to have posted; its rounds rise.

    What it said long ago of other tensors is forgotten, so that it cannot fill the memory.
    """

    def __init__(self, most: int) -> None:
        """`most` tensors are kept."""
        self._most = most
        self._rounds: dict[int, int] = {}

    def heard(self, key: TransferKey) -> None:
        """The peer has posted this one."""
        last = self._rounds.pop(key.tensor, -1)
        if len(self._rounds) >= self._most:
            del self._rounds[next(iter(self._rounds))]
        self._rounds[key.tensor] = max(last, key.round_number)

    def is_past(self, key: TransferKey) -> bool:
        """Whether the peer has posted this round, or a later one."""
        return key.round_number <= self._rounds.get(key.tensor, -1)
