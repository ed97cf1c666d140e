"""What a virtual network does to datagrams: settings of a link, and the link itself."""

from dataclasses import dataclass
from random import Random

from mltswitch.queueing import Decision, decide
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire import AGENT_HEADER_BYTES
from mltswitch.wire.tos import Ecn

UDP_AND_BELOW_BYTES = 42
"""Ethernet, IPv4 and UDP headers."""
REDUNDANT_BITS = (*range(8), *range(32, 96), *range(192, 256))
"""Version, flow token, sequence and element offset: one flipped bit contradicts the rest of the header."""


@dataclass(frozen=True, slots=True)
class BurstLoss:
    """Gilbert's two states: in the bad one, packets are lost."""

    turns_bad: float
    """Chance, packet by packet."""
    turns_good: float
    loss: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """One path in one direction."""

    rate_bps: float = 1e9
    delay_ns: int = 50_000
    queue_bytes: int = 1_000_000
    """L."""
    ecn_threshold_bytes: int | None = None
    """S."""
    loss: float = 0.0
    burst_loss: BurstLoss | None = None
    reordered: float = 0.0
    """Share of the packets that come up to `reorder_ns` later than they should."""
    reorder_ns: int = 0
    duplicated: float = 0.0
    corrupted: float = 0.0
    """Share of the packets in which a bit flips."""
    unnoticed: float = 0.0
    """Share of those that the UDP checksum lets through."""
    flips_anything: bool = False
    """Whether any bit of these may flip; else only one that a receiver notices without authentication."""
    spikes: tuple[tuple[int, int, int], ...] = ()
    """(from, to, longer by), in ns."""
    dead: tuple[tuple[int, int], ...] = ()
    """(from, to), in ns."""
    bleaches_ecn: bool = False
    """Sets the ECN field to Not-ECT."""


PERFECT = LinkSettings()


class Link:
    """A queue that drains at the link's rate, and the wire behind it."""

    def __init__(self, settings: LinkSettings, random: Random) -> None:
        self.settings = settings
        self._random = random
        self._free_ns = 0.0
        self._is_bad = False
        self._ns_per_byte = BITS_PER_BYTE * 1e9 / settings.rate_bps
        self._has_faults = bool(
            settings.loss
            or settings.burst_loss
            or settings.corrupted
            or settings.reordered
            or settings.duplicated
        )

    def carry(self, payload: bytes, tos: int, now_ns: int) -> list[tuple[int, bytes, int]]:
        """When it arrives, as what, with which DSCP/ECN byte: nothing if lost, two if doubled."""
        settings = self.settings
        if settings.dead and any(first <= now_ns < last for first, last in settings.dead):
            return []
        begins_ns = max(self._free_ns, now_ns)
        fate = decide(
            (begins_ns - now_ns) / self._ns_per_byte,
            is_capable=tos & 3 != Ecn.NOT_ECT,
            ecn_threshold=settings.ecn_threshold_bytes,
            limit=settings.queue_bytes,
        )
        if not fate.is_admitted:
            return []
        if fate is Decision.MARK:
            tos |= Ecn.CE
        if settings.bleaches_ecn:
            tos &= ~3
        self._free_ns = begins_ns + (len(payload) + UDP_AND_BELOW_BYTES) * self._ns_per_byte
        arrives_ns = int(self._free_ns) + settings.delay_ns
        for first, last, longer_ns in settings.spikes:
            if first <= now_ns < last:
                arrives_ns += longer_ns
        if not self._has_faults:
            return [(arrives_ns, payload, tos)]
        return self._through_faults(payload, tos, arrives_ns)

    def _through_faults(self, payload: bytes, tos: int, arrives_ns: int) -> list[tuple[int, bytes, int]]:
        settings, chance = self.settings, self._random.random
        if settings.loss and chance() < settings.loss:
            return []
        if settings.burst_loss is not None:
            turns = settings.burst_loss.turns_good if self._is_bad else settings.burst_loss.turns_bad
            self._is_bad ^= chance() < turns
            if self._is_bad and chance() < settings.burst_loss.loss:
                return []
        if settings.corrupted and chance() < settings.corrupted:
            if chance() >= settings.unnoticed:
                return []
            payload = self._flipped(payload)
        found = [(self._later(arrives_ns), payload, tos)]
        if settings.duplicated and chance() < settings.duplicated:
            found.append((self._later(arrives_ns) + 1000, payload, tos))
        return found

    def _later(self, arrives_ns: int) -> int:
        if self.settings.reordered and self._random.random() < self.settings.reordered:
            return arrives_ns + self._random.randrange(1 + self.settings.reorder_ns)
        return arrives_ns

    def _flipped(self, payload: bytes) -> bytes:
        if self.settings.flips_anything or len(payload) < AGENT_HEADER_BYTES:
            bit = self._random.randrange(len(payload) * BITS_PER_BYTE)
        else:
            bit = self._random.choice(REDUNDANT_BITS)
        changed = bytearray(payload)
        changed[bit // BITS_PER_BYTE] ^= 0x80 >> bit % BITS_PER_BYTE
        return bytes(changed)
