"""How a port goes from one scheduler policy to another while maps lead packets from queue to queue.

A port takes a policy by one line and packets take other queues by others, so for a while packets lie in
queues of both ends. Meanwhile each queue has to be served as one end serves it, and capped by no more than
both. Where neither policy does that, a third one stands between them: it names the queues that packets take
at either end, caps a queue only where both ends do, by the higher of both, and guarantees the higher minimum.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mltswitch.targets.dell_sonic.capabilities import QUEUE_COUNT
from mltswitch.targets.dell_sonic.settings import (
    DSCP_MAP_KIND,
    IDENTITY,
    QUEUE_MAP_KIND,
    Attributes,
    Configuration,
    PortSettings,
    SchedulerPolicy,
)
from mltswitch.wire.tos import DSCP_COUNT

_RATES: Final = ("cir", "pir")
_STRICT: Final[Attributes] = {"type": "strict"}
Queues = Mapping[int, Attributes]


class Moment(Enum):
    """When a port may take its new policy."""

    BEFORE = "before the maps change"
    AFTER = "after the maps have changed"
    NEITHER = "a third policy stands between"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the packets that arrive at the plan's ports do while their maps change."""

    moves: bool
    """Whether some packet leaves through another queue than before."""
    anywhere: bool
    """Whether a packet may meanwhile take a queue of neither end: two maps are bound one after the other."""
    queues: frozenset[int]
    """Queues that packets take before,"""
    later: frozenset[int] = frozenset()
    """and after that; a policy need not name them."""


def traffic_between(now: Configuration, then: Configuration) -> Traffic:
    """Of the ports in `then`; without a map a packet is traffic class 0, and class N goes to queue N."""
    before = [_leads_to(now, now.ports[name]) for name in then.ports]
    after = [_leads_to(then, settings) for settings in then.ports.values()]
    anywhere = any(_is_no_identity(now, now.ports[name]) for name in then.ports)
    taken, later = (frozenset(queue for queues in ports for queue in queues) for ports in (before, after))
    return Traffic(anywhere or before != after, anywhere, taken, later)


def _leads_to(configuration: Configuration, port: PortSettings) -> tuple[int, ...]:
    """Queue of each code point."""
    classes = configuration.map_entries(DSCP_MAP_KIND, port.maps.get(DSCP_MAP_KIND, ""))
    queues = configuration.map_entries(QUEUE_MAP_KIND, port.maps.get(QUEUE_MAP_KIND, ""))
    found = (classes.get(dscp, 0) for dscp in range(DSCP_COUNT))
    return tuple(queues.get(traffic_class, traffic_class) for traffic_class in found)


def _is_no_identity(configuration: Configuration, port: PortSettings) -> bool:
    bound = port.maps.get(QUEUE_MAP_KIND)
    return bound is not None and configuration.map_entries(QUEUE_MAP_KIND, bound) != IDENTITY


def passage(old: SchedulerPolicy | None, new: SchedulerPolicy, traffic: Traffic) -> tuple[Moment, Queues]:
    """When the new policy may be bound, and what has to serve the queues while packets move."""
    between = _between(old, new, traffic)
    if not traffic.moves or between == new.queues:
        return Moment.BEFORE, between
    if old is not None and all(old.queues.get(queue) == between[queue] for queue in between):
        return Moment.AFTER, between
    return Moment.NEITHER, between


def _between(old: SchedulerPolicy | None, new: SchedulerPolicy, traffic: Traffic) -> Queues:
    if traffic.anywhere:
        every = {queue: new.queues.get(queue, _STRICT) for queue in reversed(range(QUEUE_COUNT))}
        return {queue: joined({}, scheduler) for queue, scheduler in every.items()}
    present = {} if old is None else old.queues
    found = {
        queue: joined(present.get(queue, {}), scheduler) if queue in traffic.queues else scheduler
        for queue, scheduler in new.queues.items()
    }
    for queue in sorted((traffic.queues | traffic.later) - new.queues.keys(), reverse=True):
        if old is None or queue in present:
            served = present.get(queue, _STRICT)
            # where packets come to it that the new policy does not cap
            found[queue] = joined(served, {}) if queue in traffic.later else served
    return found


def joined(one: Attributes, other: Attributes) -> Attributes:
    """A strict queue that gets what either guarantees and is held by no cap that not both have."""
    attributes = dict(_STRICT)
    minima = [rate for each in (one, other) if (rate := _rate(each, "cir")) is not None]
    maxima = [rate for each in (one, other) if (rate := _rate(each, "pir")) is not None]
    if minima:
        attributes["cir"] = str(max(minima))
    if len(maxima) > 1:
        attributes["pir"] = str(max(maxima))
    return attributes


def _rate(attributes: Attributes, word: str) -> int | None:
    text = attributes.get(word, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def mended_first(running: Queues, wanted: Queues) -> Queues:
    """A policy of ours that somebody changed, while packets may be served by what it says or should say."""
    return {**running, **{queue: joined(running.get(queue, {}), wanted[queue]) for queue in wanted}}


def scheduler_lines(now: Attributes, then: Attributes) -> Iterator[str]:
    """Lines of one queue; at no time is its minimum above its maximum."""
    yield from (f"no {word}" for word in now if word not in then and word not in _RATES)
    yield from (f"{word} {then[word]}" for word in then if word not in _RATES and now.get(word) != then[word])
    changed = [word for word in _RATES if now.get(word) != then.get(word)]
    # A maximum that stays above the present minimum may come first; else the minimum makes room for it.
    minimum, maximum = _rate(now, "cir"), _rate(then, "pir")
    fits = minimum is None or maximum is None or minimum <= maximum
    for word in reversed(changed) if fits else changed:
        yield f"{word} {then[word]}" if word in then else f"no {word}"
