"""The QoS configuration of an Enterprise SONiC switch, and what it means as state.

A packet gets its traffic class by the dscp-tc map of the port where it arrives, and its queue by the tc-queue
map, which is the same on every port of a plan. The queue's wred-policy marks or drops, the port's scheduler
policy serves. All four are named objects that ports share.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from mltswitch.capabilities import BitRate, Unlimited
from mltswitch.targets.common import Key
from mltswitch.targets.dell_sonic.capabilities import BITS_OF_KBPS, KILOBYTE, LOSSLESS, QUEUE_COUNT
from mltswitch.targets.dell_sonic.names import (
    PREFIX,
    QUEUE_MAP,
    UNTRUSTED,
    dscp_map_name,
    scheduler_policy_name,
    trusted_twin,
    wred_policy_name,
)
from mltswitch.targets.dell_sonic.rewriting import Rewriting, rewriting_of
from mltswitch.targets.remap import lossless_queues
from mltswitch.targets.state import PortState, QueueState
from mltswitch.wire.tos import DSCP_COUNT

DSCP_MAP_KIND: Final = "dscp-tc"
QUEUE_MAP_KIND: Final = "tc-queue"
GROUP_MAP_KIND: Final = "tc-pg"
PAUSE_QUEUE_MAP_KIND: Final = "pfc-priority-queue"
PAUSE_GROUP_MAP_KIND: Final = "pfc-priority-pg"
MARKING: Final = ("all", "green")
"""Words of `ecn` that mark: only green is configured, the colour of what no policer has coloured."""
IDENTITY: Final[Mapping[int, int]] = {number: number for number in range(QUEUE_COUNT)}
"""Traffic class N → queue N: our map, and what a port without a map is taken to do."""
NO_NEXT_HOP: Final = IPv4Address(0)
NO_QUEUE: Final = -1
"""Where a traffic class leads that a map leaves out."""
_READ_MAPS: Final = frozenset(
    {DSCP_MAP_KIND, QUEUE_MAP_KIND, GROUP_MAP_KIND, PAUSE_QUEUE_MAP_KIND, PAUSE_GROUP_MAP_KIND}
)
"""Other kinds of maps classify by something else, or overwrite the DSCP."""
_STEP: Final = re.compile(
    r"minimum-threshold ([1-9][0-9]{0,4}) maximum-threshold ([1-9][0-9]{0,4}) drop-probability ([0-9]{1,3})"
)
_RATE: Final = re.compile(r"[1-9][0-9]{0,8}")

Attributes = Mapping[str, str]
"""First word of a line → the words after it, such as `type` → `strict`."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Thresholds in KB and probability in percent of green packets."""

    minimum: int
    maximum: int
    probability: int


@dataclass(frozen=True, slots=True)
class SchedulerPolicy:
    """Schedulers by queue, in the order in which they stand."""

    queues: Mapping[int, Attributes]
    port: Attributes | None = None
    """The shaper of the whole port; None: there is no such section."""


PortKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PortSettings:
    """What is bound on one port."""

    wred: Mapping[int, str] = field(default_factory=dict)
    scheduler: str = ""
    maps: Mapping[str, str] = field(default_factory=dict)
    """Kind → name."""
    paused: tuple[int, ...] = ()
    """Priorities with flow control."""
    others: tuple[str, ...] = ()
    """Lines that classify, drop or hold back packets in yet another way."""
    is_asymmetric: bool = False
    """Flow control by priority that heeds pause frames of every priority, and sends those of `paused`."""
    policy: str = ""
    """Policy-map that acts on packets as they arrive."""
    lines: tuple[str, ...] = ()
    """All of them, as they stand."""

    @property
    def key(self) -> PortKey:
        """The same for ports on which the same is bound; hashable."""
        bound = tuple(self.wred.items()), self.scheduler, tuple(self.maps.items())
        return (*bound, self.paused, self.others, self.is_asymmetric, self.policy)


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """One static route, as a line says it."""

    prefix: IPv4Network
    next_hop: IPv4Address
    """0.0.0.0 where there is none."""
    port: str
    """Port, and whatever else stands behind the next hop."""
    target: str
    """The words that name the next hop where the route is removed."""
    way: str
    """All words behind the prefix."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """All of a switch's configuration that concerns queues and paths."""

    wred: Mapping[str, Attributes]
    schedulers: Mapping[str, SchedulerPolicy]
    maps: Mapping[str, Mapping[str, Mapping[int, int]]]
    """Kind → name → entries."""
    ports: Mapping[str, PortSettings]
    routes: tuple[StaticRoute, ...]
    strange: Mapping[str, tuple[str, ...]]
    """Name of an object of ours → lines in it that nobody here knows."""
    flows: Mapping[str, tuple[Key, ...]]
    """`class-map NAME` or `policy-map NAME` → its lines."""
    foreign: tuple[str, ...] = ()
    """Lines of the whole switch that touch queues and that nobody here knows."""

    def map_entries(self, kind: str, name: str) -> Mapping[int, int]:
        """Entries of a map; none where it does not exist."""
        return self.maps.get(kind, {}).get(name, {})

    def rewriting(self, policy: str) -> tuple[Rewriting, tuple[str, ...]]:
        """What a policy-map rewrites, and what of its lines is otherwise."""
        class_maps = [
            line for name in self.flows if name.startswith("class-map ") for line in self.flows[name]
        ]
        return rewriting_of(self.flows.get(f"policy-map {policy}", ()), class_maps)


def curve_of(policy: Attributes) -> Curve | None:
    """What a wred-policy does to green packets; None: nothing, or nothing known."""
    match = _STEP.fullmatch(policy.get("green", ""))
    return Curve(*map(int, match.groups())) if match else None


def threshold_bytes(policy: Attributes) -> int | None:
    """S of a policy that is one certain step and marks; None for any other."""
    curve = curve_of(policy)
    if curve is None or set(policy) != {"green", "ecn"} or policy["ecn"] not in MARKING:
        return None
    return curve.minimum * KILOBYTE if curve == Curve(curve.minimum, curve.minimum, 100) else None


def rate_of(scheduler: Attributes, word: str) -> BitRate | None:
    """`cir` or `pir` of a queue."""
    text = scheduler.get(word, "")
    return BitRate(int(text) * BITS_OF_KBPS) if _RATE.fullmatch(text) else None


def is_strict(scheduler: Attributes) -> bool:
    """Whether a queue has strict priority, at most with a minimum and a maximum."""
    return scheduler.get("type") == "strict" and all(
        word == "type" or (word in {"cir", "pir"} and rate_of(scheduler, word)) for word in scheduler
    )


def classification_of(queues: Sequence[QueueState]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """(Queue, code points) of a port: what its dscp-tc map says, traffic class N being queue N."""
    return tuple((queue.queue, queue.dscps) for queue in queues)


@lru_cache(maxsize=256)
def dscp_entries(classification: tuple[tuple[int, tuple[int, ...]], ...]) -> Mapping[int, int]:
    """Entries of the dscp-tc map."""
    entries = {dscp: queue for queue, dscps in classification for dscp in dscps}
    return dict(sorted(entries.items()))


def untrusted_entries(background: int) -> Mapping[int, int]:
    """Entries of a dscp-tc map that believes nothing."""
    return dict.fromkeys(range(DSCP_COUNT), background)


class Interpreter:
    """What a configuration means as state; ports that share their maps share the work."""

    def __init__(self, configuration: Configuration, background_dscp: int) -> None:
        self._configuration = configuration
        self.background_dscp = background_dscp
        """To which ports are to rewrite code points."""
        self._known: dict[tuple[str, str], Mapping[int, tuple[int, ...]]] = {}

    def lossless_queues(self, name: str, configured: Collection[int]) -> tuple[int, ...]:
        """Queues to which a port's map leads, and that its scheduler policy does not name."""
        bound = self._configuration.ports[name].maps.get(DSCP_MAP_KIND, "")
        if bound.startswith(UNTRUSTED):
            bound = trusted_twin(bound)
        return lossless_queues(LOSSLESS, configured, self.dscps_of(bound, QUEUE_MAP))

    def port_state(self, name: str, queues: Sequence[int]) -> PortState:
        """State of some queues of one port; what no plan asks for is in `unexpected`, in klish's words."""
        return _PortReader(self, self._configuration, self._configuration.ports[name]).state(name, queues)

    def dscps_of(self, dscp_map: str, queue_map: str) -> Mapping[int, tuple[int, ...]]:
        """Queue → code points, ascending, of a port to which these maps are bound."""
        if (dscp_map, queue_map) not in self._known:
            classes = self._configuration.map_entries(DSCP_MAP_KIND, dscp_map)
            to_queue = self._configuration.map_entries(QUEUE_MAP_KIND, queue_map) if queue_map else IDENTITY
            found: dict[int, list[int]] = {}
            for dscp in sorted(classes):
                found.setdefault(to_queue.get(classes[dscp], NO_QUEUE), []).append(dscp)
            self._known[dscp_map, queue_map] = {queue: tuple(dscps) for queue, dscps in found.items()}
        return self._known[dscp_map, queue_map]


class _PortReader:
    def __init__(self, interpreter: Interpreter, configuration: Configuration, port: PortSettings) -> None:
        self._interpreter = interpreter
        self._configuration = configuration
        self._port = port
        self._unexpected: list[str] = []

    def state(self, name: str, queues: Sequence[int]) -> PortState:
        trusted, leads_to = self._classification(queues)
        self._check_maps()
        schedulers = self._schedulers(queues)
        states = tuple(
            QueueState(
                queue,
                leads_to.get(queue, ()),
                self._threshold(queue),
                Unlimited(),
                rate_of(schedulers.get(queue, {}), "cir"),
                rate_of(schedulers.get(queue, {}), "pir"),
            )
            if queue not in LOSSLESS
            else QueueState(queue, leads_to.get(queue, ()), None, Unlimited(), is_lossless=True)
            for queue in queues
        )
        self._check_names(states, trusted=trusted)
        rewritten = self._rewritten()
        return PortState(name, trusted, None, states, tuple(self._unexpected) + self._port.others, rewritten)

    def _classification(self, queues: Sequence[int]) -> tuple[bool, Mapping[int, tuple[int, ...]]]:
        """Whether the port is trusted, and queue → code points where it is or would be."""
        bound = self._port.maps.get(DSCP_MAP_KIND, "")
        trusted = bool(bound) and not bound.startswith(UNTRUSTED)
        if not bound:
            self._unexpected.append("no qos-map dscp-tc")
        elif not trusted:
            entries = self._configuration.map_entries(DSCP_MAP_KIND, bound)
            if entries != untrusted_entries(queues[-1] if queues else 0):
                self._unexpected.append(f"qos map dscp-tc {bound} leads elsewhere than to background")
            bound = trusted_twin(bound)
        queue_map = self._port.maps.get(QUEUE_MAP_KIND, "")
        self._check_queue_map(queue_map)
        return trusted, self._interpreter.dscps_of(bound, queue_map)

    def _check_queue_map(self, bound: str) -> None:
        if not bound:
            self._unexpected.append("no qos-map tc-queue")
        elif bound != QUEUE_MAP:
            self._unexpected.append(f"qos-map tc-queue {bound}")
        elif self._configuration.map_entries(QUEUE_MAP_KIND, bound) != IDENTITY:
            self._unexpected.append(f"qos map tc-queue {bound} is not one to one")

    def _check_maps(self) -> None:
        self._unexpected += (
            f"qos-map {kind} {name}" for kind, name in self._port.maps.items() if kind not in _READ_MAPS
        )

    def _rewritten(self) -> tuple[int, ...]:
        """Code points that become background's as packets arrive."""
        bound = self._port.policy
        if not bound:
            return ()
        rewriting, faults = self._configuration.rewriting(bound)
        planned = Rewriting(rewriting.dscps, self._interpreter.background_dscp).name
        if bound != planned:
            self._unexpected.append(f"service-policy type qos in {bound}")
        if bound.startswith(PREFIX):
            self._unexpected += faults
        return rewriting.dscps

    def _schedulers(self, queues: Sequence[int]) -> Mapping[int, Attributes]:
        bound = self._port.scheduler
        policy = self._configuration.schedulers.get(bound)
        if policy is None:
            self._unexpected.append(f"scheduler-policy {bound}" if bound else "no scheduler-policy")
            return {}
        for queue in queues:
            scheduler = policy.queues.get(queue, {})
            if queue not in LOSSLESS and not is_strict(scheduler):
                self._unexpected.append(f"scheduler-policy {bound}: queue {queue} {_words(scheduler)}")
        if bound.startswith(PREFIX):
            self._unexpected += (
                f"scheduler-policy {bound}: queue {queue} {_words(policy.queues[queue])}"
                for queue in policy.queues
                if queue not in queues or queue in LOSSLESS
            )
        if policy.port is not None:
            self._unexpected.append(f"scheduler-policy {bound}: port {_words(policy.port)}")
        return policy.queues

    def _threshold(self, queue: int) -> int | None:
        bound = self._port.wred.get(queue)
        if bound is None:
            return None
        policy = self._configuration.wred.get(bound, {})
        threshold = threshold_bytes(policy)
        if threshold is None:
            self._unexpected.append(f"queue {queue} wred-policy {bound}: {_words(policy)}")
        elif bound != wred_policy_name(threshold):
            self._unexpected.append(f"queue {queue} wred-policy {bound}")
        return threshold

    def _check_names(self, states: tuple[QueueState, ...], *, trusted: bool) -> None:
        """Objects that say the right thing, but belong to somebody else, who may change them."""
        bound = self._port.maps.get(DSCP_MAP_KIND, "")
        if bound and bound != dscp_map_name(classification_of(states), trusted=trusted):
            self._unexpected.append(f"qos-map dscp-tc {bound}")
        scheduler = self._port.scheduler
        if scheduler in self._configuration.schedulers and scheduler != scheduler_policy_name(states):
            self._unexpected.append(f"scheduler-policy {scheduler}")
        planned = {state.queue for state in states if not state.is_lossless}
        self._unexpected += (
            f"queue {queue} wred-policy {name}"
            for queue, name in self._port.wred.items()
            if queue not in planned and name.startswith(PREFIX)
        )
        for name in {bound, scheduler, *self._port.wred.values()}:
            self._unexpected += (f"{name}: {line}" for line in self._configuration.strange.get(name, ()))


def _words(attributes: Attributes) -> str:
    return ", ".join(f"{word} {rest}".rstrip() for word, rest in attributes.items()) or "empty"
