"""The flow simulation's compiled loops: max-min fair rates by class, and flows that wait for others.

An array of lists is stored as two arrays: the index at which each list begins (`firsts`, with one more entry
for the end of the last), and the elements of all lists in a row.
"""

from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.queueing.jit import jit

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

WAITING: Final = 0
ACTIVE: Final = 1
DONE: Final = 2
NEVER: Final = np.inf
"""Infinity, as the time of an event that never comes and as the rate of a flow that needs no time."""


@jit
def fill(
    firsts: Numbers, links: Numbers, flows: Numbers, classes: Numbers, left_bps: Floats, rates_bps: Floats
) -> None:
    """Compute max-min fair rates; a class shares what lower classes leave, starting with the fullest link.

    Args:
        firsts: where the list of each flow's links begins in `links`.
        links: the links that each flow passes, flow after flow.
        flows: numbers of the active flows, in the order of their classes.
        classes: the class of every flow; a lower one is served first.
        left_bps: capacity of each link; reduced to what remains unused.
        rates_bps: receives the rate of every active flow.
    """
    at = 0
    while at < len(flows):
        end = at
        while end < len(flows) and classes[flows[end]] == classes[flows[at]]:
            end += 1
        _fill_class(firsts, links, flows[at:end], left_bps, rates_bps)
        at = end


@jit
def _fill_class(firsts: Numbers, links: Numbers, flows: Numbers, left_bps: Floats, rates_bps: Floats) -> None:
    users = np.zeros(len(left_bps), np.int64)
    for flow in flows:
        rates_bps[flow] = -1.0 if firsts[flow] < firsts[flow + 1] else NEVER  # within a host: at once
        for place in range(firsts[flow], firsts[flow + 1]):
            users[links[place]] += 1
    begins = np.zeros(len(left_bps) + 1, np.int64)
    for link in range(len(left_bps)):
        begins[link + 1] = begins[link] + users[link]
    sharing = np.empty(begins[-1], np.int64)
    next_place = begins[:-1].copy()
    for flow in flows:
        for place in range(firsts[flow], firsts[flow + 1]):
            sharing[next_place[links[place]]] = flow
            next_place[links[place]] += 1
    heap = [(left_bps[link] / users[link], link) for link in range(len(left_bps)) if users[link]]
    heapify(heap)
    while heap:
        known, link = heappop(heap)
        if not users[link]:
            continue
        share = max(0.0, left_bps[link] / users[link])
        if share > known * (1 + 1e-12):  # others have left it meanwhile
            heappush(heap, (share, link))
            continue
        for place in range(begins[link], begins[link + 1]):
            flow = sharing[place]
            if rates_bps[flow] >= 0:
                continue
            rates_bps[flow] = share
            for other in range(firsts[flow], firsts[flow + 1]):
                left_bps[links[other]] -= share
                users[links[other]] -= 1


@jit
def _step_seconds(
    active: Numbers, remaining: Floats, rates_bps: Floats, now: float, tolerance: float
) -> float:
    """Until the first flow ends, and a little more, in which others end with it."""
    step = NEVER
    for flow in active:
        if rates_bps[flow] > 0:
            step = min(step, remaining[flow] / rates_bps[flow])
    return step if step == NEVER else step + tolerance * (now + step)


@jit
def run(
    firsts: Numbers,
    links: Numbers,
    bits: Floats,
    classes: Numbers,
    starts_seconds: Floats,
    waits: Numbers,
    delays_seconds: Floats,
    follower_firsts: Numbers,
    followers: Numbers,
    capacities_bps: Floats,
    change_seconds: Floats,
    change_links: Numbers,
    change_bps: Floats,
    tolerance: float,
    ends_seconds: Floats,
    link_bits: Floats,
) -> int:
    """Run the simulation until all flows have ended; returns how many cannot, because a link has no rate.

    Args:
        firsts: where the list of each flow's links begins in `links`.
        links: the links that each flow passes, flow after flow.
        bits: size of each flow.
        classes: the class of every flow; a lower one is served first.
        starts_seconds: the earliest start of each flow.
        waits: how many flows must end before each flow begins; counted down.
        delays_seconds: time of each flow from when its last bit leaves until it arrives.
        follower_firsts: where the list of each flow's followers begins in `followers`.
        followers: the flows that wait for each flow, flow after flow.
        capacities_bps: capacity of each link at the start; updated by changes.
        change_seconds: times at which a link's capacity changes, in ascending order.
        change_links: the link of each change.
        change_bps: the new capacity of each change.
        tolerance: flows that end within this share of the time so far end together.
        ends_seconds: receives the end of each flow.
        link_bits: increased by what each link has carried.
    """
    count = len(bits)
    remaining = bits.copy()
    state = np.full(count, WAITING)
    rates_bps = np.zeros(count)
    order = np.argsort(classes, kind="mergesort")
    coming = [(starts_seconds[flow], flow) for flow in range(count) if not waits[flow]]
    heapify(coming)
    now, change, left = 0.0, 0, count
    while left:
        while coming and coming[0][0] <= now:
            state[heappop(coming)[1]] = ACTIVE
        while change < len(change_seconds) and change_seconds[change] <= now:
            capacities_bps[change_links[change]] = change_bps[change]
            change += 1
        active = order[state[order] == ACTIVE]
        fill(firsts, links, active, classes, capacities_bps.copy(), rates_bps)
        step = _step_seconds(active, remaining, rates_bps, now, tolerance)
        if coming:
            step = min(step, coming[0][0] - now)
        if change < len(change_seconds):
            step = min(step, change_seconds[change] - now)
        if step == NEVER:
            return left
        for flow in active:
            carried = min(remaining[flow], rates_bps[flow] * step)
            for place in range(firsts[flow], firsts[flow + 1]):
                link_bits[links[place]] += carried
            if rates_bps[flow] * step < remaining[flow]:
                remaining[flow] -= carried
                continue
            left_seconds = remaining[flow] / rates_bps[flow] if remaining[flow] else 0.0
            ends_seconds[flow] = now + left_seconds + delays_seconds[flow]
            state[flow] = DONE
            left -= 1
            for place in range(follower_firsts[flow], follower_firsts[flow + 1]):
                follower = followers[place]
                waits[follower] -= 1
                if not waits[follower]:
                    heappush(coming, (max(starts_seconds[follower], ends_seconds[flow]), follower))
        now += step
    return 0


@jit
def hops(firsts: Numbers, links: Numbers, sources: Numbers, target: int) -> Numbers:
    """Number of links on a shortest way from each node to one target node; -1 where there is no way.

    Args:
        firsts: where the list of the links into each node begins in `links`.
        links: all links, grouped by the node into which they go.
        sources: the node that each link comes from.
        target: the target node.
    """
    found = np.full(len(firsts) - 1, -1)
    found[target] = 0
    queue = np.empty(len(found), np.int64)
    queue[0] = target
    head, tail = 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        for place in range(firsts[node], firsts[node + 1]):
            source = sources[links[place]]
            if found[source] < 0:
                found[source] = found[node] + 1
                queue[tail] = source
                tail += 1
    return found


@jit
def walk(
    firsts: Numbers,
    links: Numbers,
    ends: Numbers,
    distances: Numbers,
    pairs: Numbers,
    choices: Numbers,
    way_firsts: Numbers,
    ways: Numbers,
) -> int:
    """Choose a shortest way for each pair of nodes, hop by hop (ECMP); returns the total number of links.

    Args:
        firsts: where the list of the links out of each node begins in `links`.
        links: all links, grouped by the node that they come from.
        ends: the node into which each link goes.
        distances: result of `hops` for each target, one row for each.
        pairs: one row for each pair: the source node, and the row of the target in `distances`.
        choices: a number for each pair that determines the choice among equal ways, as ECMP's hash does.
        way_firsts: receives the index in `ways` at which the way of each pair begins.
        ways: receives the links of all ways.
    """
    at = 0
    for pair in range(len(pairs)):
        way_firsts[pair] = at
        node, far, choice = pairs[pair, 0], distances[pairs[pair, 1]], choices[pair]
        while far[node]:
            equal = 0
            for place in range(firsts[node], firsts[node + 1]):
                equal += far[ends[links[place]]] == far[node] - 1
            choice = (choice * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
            wanted = (choice >> 33) % equal
            for place in range(firsts[node], firsts[node + 1]):
                if far[ends[links[place]]] == far[node] - 1:
                    if not wanted:
                        ways[at] = links[place]
                        break
                    wanted -= 1
            node = ends[ways[at]]
            at += 1
    way_firsts[len(pairs)] = at
    return at
