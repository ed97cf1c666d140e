"""What is kept of rounds of tensors, which rise: what comes before one can be told to be over."""

from typing import Generic, TypeVar

from mltswitch.hostagent.transport.interfaces import TransferKey

Entry = TypeVar("Entry")


class ByRound(Generic[Entry]):
    """One entry a round."""

    def __init__(self) -> None:
        self._by_tensor: dict[int, dict[int, Entry]] = {}
        """And by round."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: TransferKey, entry: Entry) -> None:
        """In the place of what was kept of the same round before."""
        rounds = self._by_tensor.setdefault(key.tensor, {})
        self._count += key.round_number not in rounds
        rounds[key.round_number] = entry

    def pop(self, key: TransferKey) -> Entry | None:
        """None: there is none."""
        rounds = self._by_tensor.get(key.tensor, {})
        entry = rounds.pop(key.round_number, None)
        self._count -= entry is not None
        if not rounds:
            self._by_tensor.pop(key.tensor, None)
        return entry

    def pop_earlier(self, key: TransferKey) -> list[tuple[TransferKey, Entry]]:
        """Rounds of the same tensor before this one, in order."""
        rounds = self._by_tensor.get(key.tensor, {})
        earlier = [TransferKey(key.tensor, number) for number in sorted(rounds) if number < key.round_number]
        found = [(skipped, self.pop(skipped)) for skipped in earlier]
        return [(skipped, entry) for skipped, entry in found if entry is not None]

    def clear(self) -> None:
        """Keep nothing."""
        self._by_tensor.clear()
        self._count = 0


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
