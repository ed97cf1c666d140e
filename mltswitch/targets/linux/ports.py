"""Translates a port from state to facts, one for each line of tc, and back.

Without a guaranteed share, one prio holds all queues:

    10: prio > queue 1, 2, …, n

With some, strict priority goes on to rule among the gradients, but a deficit round robin divides what the
control classes leave between all of them and each of the last queues, which are guaranteed a share. Below it
nothing may be held back (drr stops for a child that has packets and gives none), so that a queue with a rate
cap has to stand before it:

    10: prio > control queues
             > 20: drr > 30: prio > gradient queues
                       > weighted queues
                       > background

A prio that would have one band is left out. As packets arrive, clsact makes background's of code points that
the port may not use, so that egress queues can believe every DSCP, as all switches behind this one can. The
ECN bits stay (`retain 0xfc`). A port that is not trusted rewrites every packet, and needs no match.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.engine.facts import Fact, PortFacts
from mltswitch.targets.linux.lines import (
    INNER,
    MARKS,
    OUTER,
    QUANTUM_BYTES,
    SHARE,
    red_numbers,
    shaper_burst_bytes,
    text_of,
)
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, QueueState, SwitchState, every_dscp_but
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire.tos import DSCP_COUNT

Way = tuple[tuple[str, int], ...]
"""The way of a packet to its queue: pairs of a qdisc's handle and the minor number of its band or class."""
Ways = tuple[Way, ...]
"""The way to each queue, in order of service; the last queue takes packets that no filter names."""
QUEUE_FACTS: Final = frozenset({"red", "bfifo", "empty"})
"""Names of facts of what stands in a queue's place; `empty` is the kernel's own queue, without a line."""
LEAST_BANDS: Final = 2
"""The fewest bands that prio accepts (linux net/sched/sch_prio.c, prio_tune)."""
LARGEST_SHARE: Final = 99
"""The percentage of a port that drr can share out among the last queues together."""
DSCP_MASK: Final = 0xFC
_NEIGHBOUR_DISCOVERY: Final = (135, 136)
"""Neighbour solicitation and advertisement (RFC 4861, section 4)."""


def ways_to(count: int, ahead: int | None, shares: int) -> Ways:
    """The way to each of `count` queues: `ahead` are served before the shared ones (None: no queue is
    shared), and the last `shares` have a guaranteed share."""
    if ahead is None:
        return tuple(((OUTER, number),) for number in range(1, count + 1))
    shared: Way = ((OUTER, ahead + 1),) if ahead else ()
    gradients = count - ahead - shares
    bands: list[Way] = [((INNER, number),) for number in range(1, gradients + 1)] if gradients > 1 else [()]
    return (
        *(((OUTER, number),) for number in range(1, ahead + 1)),
        *((*shared, (SHARE, 1), *band) for band in bands),
        *((*shared, (SHARE, minor)) for minor in range(2, shares + 2)),
    )


def ahead_of_shares(queues: Sequence[QueueState]) -> tuple[int | None, int]:
    """How many queues are served before the shared ones (None: none is shared), and how many have a share.

    Served before them are the queues before the first one with a threshold, and every capped one.
    """
    count = len(queues)
    shares = count - next((n for n, queue in enumerate(queues) if queue.minimum is not None), count)
    if not shares:
        return None, 0
    thresholds = (n for n, queue in enumerate(queues) if queue.ecn_threshold_bytes is not None)
    capped = (n + 1 for n, queue in enumerate(queues) if queue.maximum is not None)
    return max(next(thresholds, count - shares - 1), *capped, 0), shares


def defaults(ways: Ways) -> dict[str, int]:
    """Qdisc handle → minor number of its last band, for packets that no filter names."""
    return {handle: minor for way in ways for handle, minor in way}


def place(handle: str, minor: int) -> str:
    """A band or class as tc names it, `HANDLE:MINOR`."""
    return f"{handle}{minor:x}"


def handles(number: int) -> tuple[str, str]:
    """The handles of what stands in a queue's place, and of the queue below it if that is a rate cap."""
    return f"1{number:02x}:", f"2{number:02x}:"


def shares_of(queues: Iterable[QueueState]) -> tuple[int, ...]:
    """Guaranteed shares, in percent, of the queues that have one."""
    return tuple(queue.minimum.percent for queue in queues if isinstance(queue.minimum, PortShare))


def planned_facts(state: SwitchState) -> dict[str, PortFacts]:
    """Port name → the facts that its state asks for; ports with equal states share one mapping."""
    made: dict[tuple[object, ...], PortFacts] = {}
    found: dict[str, PortFacts] = {}
    for port in state.ports:
        key = (port.shaped_bps, id(port.queues), port.rewritten)
        if key not in made:
            ahead, shares = ahead_of_shares(port.queues)
            count = len(port.queues)
            # Of what runs, a queue with a share may have a cap, too; nothing is left then that could share.
            ahead = None if ahead is None else min(ahead, max(count - shares - 1, 0))
            ways = ways_to(count, ahead, shares)
            queue_of = {dscp: n for n, queue in enumerate(port.queues) for dscp in queue.dscps}
            filters = _filters(ways, [queue_of.get(dscp, count - 1) for dscp in range(DSCP_COUNT)])
            made[key] = port_facts(port, state.background_dscp, ways, filters)
        found[port.name] = made[key]
    return found


def port_facts(
    port: PortState, background_dscp: int, ways: Ways, filters: Collection[Fact]
) -> dict[Fact, Any]:
    """The facts of a port in the order of their lines; those that begin with `empty` have no line."""
    last, shares, above = defaults(ways), shares_of(port.queues), "root"
    facts: dict[Fact, Any] = {("clsact",): None, ("unmark",): None}
    facts |= dict.fromkeys(marks_of(port.rewritten, background_dscp))
    facts["reset",] = None
    if port.shaped_bps is not None:
        burst_bytes = shaper_burst_bytes(port.shaped_bps)
        facts["shaper",], above = (port.shaped_bps, burst_bytes, burst_bytes), "parent 1:1"
    if OUTER in last:
        facts["prio", above, OUTER] = last[OUTER]
        above = f"parent {place(OUTER, last[OUTER])}"
    if SHARE in last:
        facts["share", above] = None
        percents = (100 - sum(shares), *shares)
        facts |= {("class", minor): percent * QUANTUM_BYTES for minor, percent in enumerate(percents, 1)}
        facts |= dict.fromkeys(entry for entry in filters if entry == _rest_of_share(last))
    if INNER in last:
        facts["prio", f"parent {place(SHARE, 1)}", INNER] = last[INNER]
    for queue, way in zip(port.queues, ways, strict=False):
        facts |= _queue_facts(queue, place(*way[-1]))
    return facts | dict.fromkeys(sorted(filters, key=_filter_order))


def _queue_facts(queue: QueueState, parent: str) -> Iterator[tuple[Fact, Any]]:
    """red where there is a threshold, else bfifo, below a tbf where there is a cap."""
    handle, below = handles(queue.queue)
    limit_bytes = queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else None
    if isinstance(queue.maximum, BitRate):
        rate_bps = queue.maximum.bps
        yield ("cap", parent, handle), (rate_bps, shaper_burst_bytes(rate_bps), limit_bytes)
        parent, handle = f"{handle}1", below
    if queue.ecn_threshold_bytes is not None:
        yield ("red", parent, handle), red_numbers(limit_bytes, queue.ecn_threshold_bytes)
    else:
        yield ("empty" if limit_bytes is None else "bfifo", parent, handle), limit_bytes


def _filters(ways: Ways, queue_of_dscp: Sequence[int]) -> frozenset[Fact]:
    """All filters of a port, for each qdisc those that its own default does not make needless.

    The kernel tries lower preferences first.
    """
    last = defaults(ways)
    named = [[(parent, minor) for parent, minor in way if minor != last[parent]] for way in ways]
    found: set[Fact] = set()
    for parent, minor in named[0]:
        # ARP and neighbour discovery carry no DSCP of ours, and could starve in the last queue. A hop limit
        # of 255 says that nobody forwarded the packet (RFC 4861, section 7.1).
        found.add(("filter", parent, "arp", 2, "", minor))
        for number in _NEIGHBOUR_DISCOVERY:
            match = f"ip_proto icmpv6 type {number} ip_ttl 255"
            found.add(("filter", parent, "ipv6", 3, match, minor))
    for dscp, queue in enumerate(queue_of_dscp):
        for parent, minor in named[queue]:
            found.add(("filter", parent, "ip", 6, _dscp_match(dscp), minor))
            found.add(("filter", parent, "ipv6", 7, _dscp_match(dscp), minor))
    if SHARE in last:
        found.add(_rest_of_share(last))
    return frozenset(found)


def _rest_of_share(last: Mapping[str, int]) -> Fact:
    """What takes the packets that no other filter of drr names: it has no default, and would drop them."""
    return ("filter", SHARE, "all", 8, "", last[SHARE])


def _filter_order(entry: Fact) -> tuple[object, ...]:
    """Filters in the order of a file, and those of arriving packets in that of their words."""
    if entry[0] != "filter":
        return (_words(entry),)
    _, parent, protocol, preference, match, minor = entry
    return parent, preference, minor, match, protocol


def _words(entry: Fact) -> str:
    """A filter as faults name it."""
    if entry[0] != "filter":
        return f"ingress filter {text_of(entry, None).partition(' ingress ')[2]}"
    _, parent, protocol, _, match, minor = entry
    return f"filter {protocol} {match} to {place(parent, minor)}".replace("  ", " ")


def _faults(expected: Set[Fact], present: Set[Fact]) -> list[str]:
    """What no plan asks for of the filters that are present."""
    missing = [f"no {_words(entry)}" for entry in sorted(expected - present, key=_filter_order)]
    return missing + [_words(entry) for entry in sorted(present - expected, key=_filter_order)]


def tos_match(octet: int, mask: int = DSCP_MASK) -> str:
    """Value and mask by which flower matches bits of the octet that holds the DSCP, for IPv4 and IPv6."""
    return f"ip_tos 0x{octet:02x}/0x{mask:02x}"


def _dscp_match(dscp: int) -> str:
    return tos_match(dscp << 2)


def marks_of(dscps: tuple[int, ...], background_dscp: int) -> Iterator[Fact]:
    """The facts of the filters that rewrite these DSCPs of arriving packets to background's."""
    is_all = dscps == every_dscp_but(background_dscp)
    for preference, what in enumerate(MARKS.values(), 1):
        for match in [""] if is_all else map(_dscp_match, dscps):
            yield what, preference, match, background_dscp << 2


def _rewriting_of(marks: Set[Fact]) -> tuple[tuple[int, ...], int]:
    """(code points that marks rewrite, to which)."""
    background_dscp = min((octet >> 2 for _, _, _, octet in marks), default=0)
    if any(not match for _, _, match, _ in marks):
        return every_dscp_but(background_dscp), background_dscp
    dscps = {int(match.split(" ")[1][:4], 16) >> 2 for _, _, match, _ in marks}
    return tuple(sorted(dscps)), background_dscp


class Port(NamedTuple):
    """A port as facts describe it."""

    state: PortState
    background_dscp: int
    """The DSCP to which its code points are rewritten; 0 where none is."""
    ways: Ways


def port_of(facts: PortFacts, faults: Iterable[str] = ()) -> Port:
    """The port, without its name, that these facts describe; they must be in the order of their lines.

    Its `unexpected` holds `faults` (what no fact can say) and what no plan asks for. Raises
    ValueError where there are more or fewer queues than the prios lead to.
    """
    bands = {fact[2]: value for fact, value in facts.items() if fact[0] == "prio"}
    quanta = [value for fact, value in facts.items() if fact[0] == "class" and fact[1] > 1]
    shares = tuple(quantum // QUANTUM_BYTES for quantum in quanta)
    queues = [fact for fact in facts if fact[0] in QUEUE_FACTS]
    outer, inner = bands.get(OUTER, 0), bands.get(INNER, 0)
    ahead = max(outer - 1, 0) if shares else None
    ways = ways_to(len(queues), ahead, len(shares))
    last = defaults(ways)
    if not queues or len(ways) != len(queues) or (last.get(OUTER, 0), last.get(INNER, 0)) != (outer, inner):
        raise ValueError(f"{len(queues)} queues do not fit prios of {outer} and {inner} bands")
    filters = frozenset(fact for fact in facts if fact[0] == "filter")
    queue_of_dscp = _queues_of_dscps(ways, filters)
    states = tuple(_queues(facts, len(queues) - len(shares), shares, queue_of_dscp))
    marks = {fact for fact in facts if fact[0] in MARKS.values()}
    rewritten, background_dscp = _rewriting_of(marks)
    unexpected = [*faults, *_faults({*marks_of(rewritten, background_dscp)}, marks)]
    says_all = not unexpected
    unexpected += _faults(_filters(ways, queue_of_dscp), filters)
    if shares and says_all and ahead_of_shares(states)[0] != ahead:
        unexpected.append(f"a share after {ahead} queues, not after {ahead_of_shares(states)[0]}")
    trusted = rewritten != every_dscp_but(background_dscp)
    shaped_bps, *_ = facts.get(("shaper",), (None,))
    state = PortState("", trusted, shaped_bps, states, tuple(unexpected), rewritten)
    return Port(state, background_dscp, ways)


def _queues(
    facts: PortFacts, first: int, shares: Sequence[int], queue_of_dscp: Sequence[int]
) -> Iterator[QueueState]:
    """The queues in their order, from which their handles follow; `first` is the first one with a share."""
    maximum, number = None, 0
    for (what, *_), value in facts.items():
        if what == "cap":
            maximum = BitRate(value[0])
        elif what in QUEUE_FACTS:
            limit_bytes, threshold_bytes = value[:2] if what == "red" else (value, None)
            yield QueueState(
                number + 1,
                tuple(dscp for dscp, queue in enumerate(queue_of_dscp) if queue == number),
                threshold_bytes,
                Unlimited() if limit_bytes is None else BytesLimit(limit_bytes),
                PortShare(shares[number - first]) if number >= first else None,
                maximum,
            )
            maximum, number = None, number + 1


def _queues_of_dscps(ways: Ways, filters: Collection[Fact]) -> list[int]:
    """The queue that each code point leads to, by the IPv4 filters of one qdisc after the other."""
    queue_of, last = {way: queue for queue, way in enumerate(ways)}, defaults(ways)
    tried = sorted(filters, key=_filter_order, reverse=True)  # what the kernel tries first stands last
    minors = {(parent, match): minor for _, parent, protocol, _, match, minor in tried if protocol == "ip"}

    def queue(match: str) -> int:
        way: Way = ()
        for parent in last:
            way = (*way, (parent, minors.get((parent, match), last[parent])))
            if way in queue_of:
                return queue_of[way]
        return len(ways) - 1  # a filter that leads nowhere, and is reported as such

    return [queue(_dscp_match(dscp)) for dscp in range(DSCP_COUNT)]


def ports_of(found: Mapping[str, Port]) -> tuple[tuple[PortState, ...], int]:
    """The ports with their names, and the DSCP to which the first port that rewrites any rewrites them."""
    backgrounds = [port.background_dscp for port in found.values() if port.state.rewritten]
    ports: list[PortState] = []
    for name, (state, own, _) in found.items():
        faults = state.unexpected
        if state.rewritten and own != backgrounds[0]:
            faults += (f"rewrites to DSCP {own}, others to {backgrounds[0]}",)
        ports.append(replace(state, name=name, unexpected=faults))
    return tuple(ports), next(iter(backgrounds), 0)


@remembering_last
def check_expressible(state: SwitchState) -> None:
    """Refuse what no filter and no qdisc can do; raises UnsupportedPlanError naming port and queue."""
    for port in {id(port.queues): port for port in state.ports}.values():
        for what, place, expected in _problems(port):
            raise UnsupportedPlanError(what, where=f"port {port.name}{place}", expected=expected)
    for port in state.ports:
        if port.trusted is (port.rewritten == every_dscp_but(state.background_dscp)):
            raise UnsupportedPlanError(
                "a port that is not trusted rewrites all code points, and no other does",
                where=f"port {port.name}",
            )
    if state.segment_routing is not None and not state.segment_routing.routes:
        raise UnsupportedPlanError(
            "SRv6 needs a route, on whose port a segment stands", where="segment routing"
        )


def _problems(port: PortState) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the queues of a port, where behind its name, and what is expected."""
    queues, shaped_bps = port.queues, port.shaped_bps or 0
    ahead, shares = ahead_of_shares(queues)
    first = len(queues) - shares
    for queue in queues[first:]:
        if queue.minimum is None:
            yield "stands below a queue with a guarantee, and has none", f", queue {queue.queue}", ""
        if queue.maximum is not None:
            yield "a queue with a guarantee cannot be held to a rate", f", queue {queue.queue}", ""
    if len(queues) < LEAST_BANDS:
        yield f"prio needs {LEAST_BANDS} bands or more", ": classes", ""
    if shaped_bps % BITS_PER_BYTE:
        what = f"tc shapes to whole bytes per second, not to {shaped_bps} bit/s"
        yield what, ": ports.rate", f"a multiple of {BITS_PER_BYTE} bit/s"
    if [queue.queue for queue in queues] != list(range(1, len(queues) + 1)):
        yield "queues are not numbered 1, 2, …", "", ""
    if ahead is not None and ahead >= first:
        yield "no queue is left that could share with the last ones", "", ""
    if sum(shares_of(queues)) > LARGEST_SHARE:
        yield "the guarantees leave nothing to share", "", ""
