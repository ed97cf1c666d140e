"""What happens in one scenario of the campaign, drawn from a seed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import TypeVar

from mltswitch.hostagent.transport.interfaces import Direction, TransferKey
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import ElementType
from tests.hostagent.virtual.links import BurstLoss, LinkSettings
from tests.hostagent.virtual.network import AttackSettings, ControlSettings, HostSettings

MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND
FOREVER = 10**18
HEADER_AND_TAG_BYTES = 56
PATIENT = ConnectionSettings()
IMPATIENT = ConnectionSettings(
    ping_interval_ns=80 * MILLISECOND, silence_ns=400 * MILLISECOND, handshake_ns=150 * MILLISECOND
)

Value = TypeVar("Value")


class Kind(StrEnum):
    """What a scenario is about."""

    BENIGN = "benign"
    """Faults that every transfer must survive: all ends patient, all complete."""
    HURRIED = "hurried"
    """The same faults, worse; deadlines that may be missed, cancels, disagreement."""
    BROKEN = "broken"
    """Peers die or freeze, control channels break, paths stay dead, ends close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One tensor from one end of a pair to the other."""

    pair: int
    sender: int
    """0 or 1: which side of the pair."""
    key: TransferKey
    element_type: ElementType
    element_count: int
    received_type: ElementType
    received_count: int
    """What the receiver expects; disagrees with the sender where both are to find out."""
    importance: tuple[str, float]
    """Name of a policy and its share."""
    burst_packets: int
    loss_bound: float
    important_loss_bound: float | None
    keep_missing: bool
    post_ns: dict[Direction, int | None]
    """None: that side never hears of it."""
    deadline_ns: dict[Direction, int]
    cancel_ns: dict[Direction, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two hosts and what is between them; where there are two of something, the first side's comes first."""

    paths: int
    links: tuple[tuple[LinkSettings, ...], tuple[LinkSettings, ...]]
    control: ControlSettings
    hosts: tuple[HostSettings, HostSettings]
    attack: AttackSettings
    settings: tuple[ConnectionSettings, ConnectionSettings]
    authenticate: tuple[bool, bool]
    payload_bytes: tuple[int, int]
    window_bytes: tuple[int, int]
    close_ns: tuple[int | None, int | None]
    line_bps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that is needed to play it again."""

    seed: int
    kind: Kind
    pairs: tuple[Pair, ...]
    transfers: tuple[Transfer, ...]

    @property
    def ends_ns(self) -> int:
        """When every transfer must have ended, were no host frozen."""
        return max(deadline for transfer in self.transfers for deadline in transfer.deadline_ns.values())


class Dice:
    """Draws from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  (a simulation, no secret)

    def maybe(self, chance: float, make: Callable[[], Value], otherwise: Value) -> Value:
        return make() if self.random.random() < chance else otherwise

    def size(self, least: int, most: int) -> int:
        """Each order of magnitude as often as any other."""
        return min(most, int(least * (most / least + 1) ** self.random.random()))

    def share(self, most: float) -> float:
        return self.random.random() ** 2 * most


def scenario(seed: int) -> Scenario:
    """The scenario of this seed."""
    dice = Dice(seed)
    kind = dice.random.choices(list(Kind), (0.3, 0.35, 0.35))[0]
    pairs = tuple(
        random_pair(dice, kind) for _ in range(dice.random.choices((1, 2, 3), (0.75, 0.15, 0.1))[0])
    )
    transfers = tuple(_transfers(dice, kind, pairs))
    return Scenario(seed=seed, kind=kind, pairs=pairs, transfers=transfers)


def random_pair(dice: Dice, kind: Kind) -> Pair:
    """Two hosts and a network between them, with the faults of the kind."""
    random = dice.random
    paths = random.choice((1, 1, 2, 2, 3, 4))
    authenticate = (random.random() < 0.2, random.random() < 0.2)
    line_bps = random.choice((50e6, 500e6, 10e9))
    delay_ns = dice.size(5_000, 2 * MILLISECOND)
    common = _link(dice, kind, line_bps, delay_ns, any(authenticate))
    links = tuple(
        tuple(
            dice.maybe(0.3, lambda: _link(dice, kind, line_bps, delay_ns, any(authenticate)), common)
            for _ in range(paths)
        )
        for _ in range(2)
    )
    if kind is not Kind.BROKEN:
        # One path that is never dead for good: there is a way to complete.
        links = tuple((replace(path[0], dead=()), *path[1:]) for path in links)
    settings = PATIENT if kind is Kind.BENIGN else random.choice((PATIENT, IMPATIENT, IMPATIENT))
    payload_bytes = random.choice((64, 128, 300, 1408))
    return Pair(
        paths=paths,
        links=(links[0], links[1]),
        control=_control(dice, kind, delay_ns),
        hosts=(_host(dice, kind), _host(dice, kind)),
        attack=_attack(dice, any(authenticate)),
        settings=(settings, settings),
        authenticate=authenticate,
        payload_bytes=(payload_bytes, payload_bytes + random.choice((0, 0, 8, 100))),
        window_bytes=(dice.size(2_000, 1_000_000), dice.size(2_000, 1_000_000)),
        close_ns=(
            dice.maybe(0.05 * (kind is Kind.BROKEN), lambda: dice.size(1000, SECOND), None),
            dice.maybe(0.05 * (kind is Kind.BROKEN), lambda: dice.size(1000, SECOND), None),
        ),
        line_bps=line_bps,
    )


def _link(dice: Dice, kind: Kind, line_bps: float, delay_ns: int, is_authenticated: bool) -> LinkSettings:
    random = dice.random
    worse = 1.0 if kind is Kind.BENIGN else 2.0
    queue_bytes = dice.size(3_000, 300_000)
    return LinkSettings(
        rate_bps=line_bps * random.choice((1, 1, 0.5, 0.1)),
        delay_ns=delay_ns,
        queue_bytes=queue_bytes,
        ecn_threshold_bytes=dice.maybe(0.5, lambda: max(1, queue_bytes // random.randint(1, 4)), None),
        loss=dice.maybe(0.5, lambda: dice.share(0.2 * worse), 0.0),
        burst_loss=dice.maybe(
            0.15,
            lambda: BurstLoss(dice.share(0.05), 0.05 + random.random() / 2, random.uniform(0.5, 1)),
            None,
        ),
        reordered=dice.maybe(0.3, lambda: dice.share(1.0), 0.0),
        reorder_ns=dice.size(1000, 5 * MILLISECOND),
        duplicated=dice.maybe(0.25, lambda: dice.share(0.5), 0.0),
        corrupted=dice.maybe(0.25, lambda: dice.share(0.2), 0.0),
        unnoticed=0.5,
        flips_anything=is_authenticated,
        spikes=dice.maybe(0.2, lambda: (_span(dice, 20 * MILLISECOND, 20 * MILLISECOND),), ()),
        dead=dice.maybe(0.1 * worse, lambda: (_dead(dice, kind),), ()),
        bleaches_ecn=random.random() < 0.05,
    )


def _span(dice: Dice, latest_ns: int, longest_ns: int) -> tuple[int, int, int]:
    """(from, to, longer by)."""
    first = dice.random.randrange(latest_ns)
    return first, first + dice.size(1000, longest_ns), dice.size(1000, longest_ns)


def _dead(dice: Dice, kind: Kind) -> tuple[int, int]:
    first, last, _ = _span(dice, 20 * MILLISECOND, 200 * MILLISECOND)
    return first, FOREVER if kind is Kind.BROKEN and dice.random.random() < 0.5 else last


def _control(dice: Dice, kind: Kind, delay_ns: int) -> ControlSettings:
    random, is_broken = dice.random, kind is Kind.BROKEN
    return ControlSettings(
        delay_ns=delay_ns,
        jitter_ns=dice.maybe(0.3, lambda: dice.size(1000, 5 * MILLISECOND), 0),
        chunk_bytes=random.choices((1, 7, 100, 65_536), (0.05, 0.15, 0.3, 0.5))[0],
        breaks_ns=dice.maybe(0.15 * is_broken, lambda: dice.size(1000, SECOND), None),
        dead=dice.maybe(0.15 * is_broken, lambda: (_dead(dice, kind),), ()),
    )


def _host(dice: Dice, kind: Kind) -> HostSettings:
    random = dice.random
    frozen: tuple[tuple[int, int], ...] = ()
    if kind is not Kind.BENIGN and random.random() < 0.15:
        first, last, _ = _span(dice, 20 * MILLISECOND, 300 * MILLISECOND)
        frozen = ((first, FOREVER if kind is Kind.BROKEN and random.random() < 0.5 else last),)
    return HostSettings(
        read_ns=dice.size(100, MILLISECOND),
        late_ns=dice.maybe(0.3, lambda: dice.size(1000, 3 * MILLISECOND), 0),
        frozen=frozen,
        buffer_datagrams=dice.maybe(0.1, lambda: random.randint(5, 50), 10_000),
        maximum_run=random.choice((1, 1, 4, 16)),
        maximum_packets=random.choice((1, 5, 64, 1024)),
    )


def _attack(dice: Dice, is_authenticated: bool) -> AttackSettings:
    return AttackSettings(
        forged=dice.maybe(0.3, lambda: dice.share(0.5), 0.0),
        knows_token=is_authenticated and dice.random.random() < 0.7,
        replayed=dice.maybe(0.3, lambda: dice.share(0.5), 0.0),
        replay_ns=dice.size(1000, 500 * MILLISECOND),
    )


def _transfers(dice: Dice, kind: Kind, pairs: tuple[Pair, ...]) -> list[Transfer]:
    random = dice.random
    found = []
    for pair in range(len(pairs)):
        for tensor in range(random.choices((1, 2, 4), (0.6, 0.3, 0.1))[0]):
            sender = random.randrange(2)
            rounds = random.choices((1, 2, 4), (0.5, 0.3, 0.2))[0]
            first = _transfer(dice, kind, pairs[pair], pair, tensor * 1000 + random.randrange(3), sender)
            step_ns = random.choice((0, MILLISECOND, 20 * MILLISECOND))
            found += [_round(dice, kind, first, index, index * step_ns) for index in range(rounds)]
    return found


def _transfer(dice: Dice, kind: Kind, pair: Pair, place: int, tensor: int, sender: int) -> Transfer:
    random = dice.random
    element_type = random.choice(list(ElementType))
    per_packet = max(1, (min(pair.payload_bytes) - HEADER_AND_TAG_BYTES) // element_type.size_bytes)
    packets = dice.size(1, random.choices((3, 12, 40, 300), (0.4, 0.4, 0.17, 0.03))[0])
    count = max(1, per_packet * packets - random.randrange(per_packet))
    return Transfer(
        pair=place,
        sender=sender,
        key=TransferKey(tensor, random.randrange(3)),
        element_type=element_type,
        element_count=count,
        received_type=element_type,
        received_count=count,
        importance=(random.choice(("all", "none", "front", "back", "scattered")), random.random()),
        burst_packets=random.choice((1, 1, 4, 16, 64)),
        loss_bound=dice.maybe(0.6, lambda: dice.share(0.5), 0.0),
        important_loss_bound=dice.maybe(0.4, lambda: dice.share(0.2), None),
        keep_missing=random.random() < 0.4,
        post_ns={
            Direction.SEND: 0,
            Direction.RECEIVE: 0,
            random.choice(list(Direction)): random.choice((0, 0, MILLISECOND, 10 * MILLISECOND)),
        },
        deadline_ns={},
        cancel_ns={},
    )


def _round(dice: Dice, kind: Kind, first: Transfer, index: int, later_ns: int) -> Transfer:
    random, is_benign = dice.random, kind is Kind.BENIGN
    if not is_benign and random.random() < 0.05:
        first = _disagreeing(dice, first)
    post_ns = {direction: (at or 0) + later_ns for direction, at in first.post_ns.items()}
    known: dict[Direction, int | None] = {**post_ns}
    if not is_benign and random.random() < 0.1:
        # Never, or out of the order of rounds.
        known[random.choice(list(Direction))] = random.choice((None, random.randrange(20 * MILLISECOND)))

    def deadline() -> int:
        return later_ns + (60 * SECOND if is_benign else dice.size(100_000, SECOND))

    common_ns = deadline()
    cancel_ns: dict[Direction, int | None] = dict.fromkeys(Direction)
    if not is_benign and random.random() < 0.1:
        cancel_ns[random.choice(list(Direction))] = later_ns + dice.size(1000, 50 * MILLISECOND)
    return replace(
        first,
        key=TransferKey(first.key.tensor, first.key.round_number + index),
        post_ns=known,
        deadline_ns={direction: dice.maybe(0.3, deadline, common_ns) for direction in Direction},
        cancel_ns=cancel_ns,
    )


def _disagreeing(dice: Dice, transfer: Transfer) -> Transfer:
    if dice.random.random() < 0.5:
        others = [entry for entry in ElementType if entry is not transfer.element_type]
        return replace(transfer, received_type=dice.random.choice(others))
    return replace(transfer, received_count=transfer.element_count + dice.random.choice((-1, 1, 1000)) or 2)
