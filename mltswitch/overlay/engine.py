"""Flows of a network in compiled loops: max-min fair rates by class, and flows that follow others.

All compiled code of this room stands in this one file: numba's cache on disk notices a change only in the
file of the function that is called. Arrays of lists are two: where each list begins, with one more place for
the end, and all of them in a row.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

WAITING: Final = 0
ACTIVE: Final = 1
DONE: Final = 2
NEVER: Final = np.inf
"""Also the rate of what needs no time."""


def _compiled(function: Function) -> Function:
    try:
        found = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no place for the cache
        found = numba.njit(error_model="numpy")(function)
    return cast("Function", found)


@_compiled
def fill(
    firsts: Numbers, links: Numbers, flows: Numbers, classes: Numbers, left_bps: Floats, rates_bps: Floats
) -> None:
    """Max-min fair rates: a class gets what those before it leave, and the fullest link is shared first.

    Args:
        firsts: of each flow's links.
        links: that flows pass.
        flows: that are there, in the order of their classes.
        classes: of every flow; a lower one goes first.
        left_bps: of each link; what nobody has is left in it.
        rates_bps: of every flow, written.
    """
    at = 0
    while at < len(flows):
        end = at
        while end < len(flows) and classes[flows[end]] == classes[flows[at]]:
            end += 1
        _fill_class(firsts, links, flows[at:end], left_bps, rates_bps)
        at = end


@_compiled
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


@_compiled
def _step_seconds(
    active: Numbers, remaining: Floats, rates_bps: Floats, now: float, tolerance: float
) -> float:
    """Until the first flow ends, and a little more, in which others end with it."""
    step = NEVER
    for flow in active:
        if rates_bps[flow] > 0:
            step = min(step, remaining[flow] / rates_bps[flow])
    return step if step == NEVER else step + tolerance * (now + step)


@_compiled
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
    """Until all flows have ended; returns how many have not, because a link stands still.

    Args:
        firsts: see `fill`, as `links` and `classes`.
        links: see there.
        bits: of each flow.
        classes: see `fill`.
        starts_seconds: before which a flow does not begin.
        waits: flows that must have ended before each; counted down.
        delays_seconds: of each flow, from when its last bit leaves until it is there.
        follower_firsts: of each flow's followers.
        followers: flows that wait for it.
        capacities_bps: of links at first; changed.
        change_seconds: when a link changes, in order.
        change_links: which.
        change_bps: to what.
        tolerance: flows that end within this share of the time so far end together.
        ends_seconds: of each flow, written.
        link_bits: what each link has carried, added to.
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


@_compiled
def hops(firsts: Numbers, links: Numbers, sources: Numbers, target: int) -> Numbers:
    """Links from each node to one node on a shortest way; -1: there is none.

    Args:
        firsts: of the links into each node.
        links: all of them, by the node into which they go.
        sources: of each link, the node that it comes from.
        target: the node.
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


@_compiled
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
    """One of the shortest ways of each pair, chosen hop by hop (ECMP); how many links they have in all.

    Args:
        firsts: of the links out of each node.
        links: all of them, by the node that they come from.
        ends: of each link, the node into which it goes.
        distances: from each node to each target, by `hops`; a row for each target.
        pairs: a row for each: where it begins, and the row of its target in `distances`.
        choices: a number for each that decides; the same, the same way.
        way_firsts: of each pair's links, written.
        ways: links, written.
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
