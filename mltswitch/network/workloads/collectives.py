"""Collective operations as flows between hosts, each of which waits for what it passes on."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from mltswitch.network.workloads.base import After, Flow, Work

Make = Callable[[int, int, int, After, bool], Flow]
"""(source, destination, bytes, what it waits for, whether it is a result) → a flow."""


def shares(size_bytes: int, count: int) -> list[int]:
    """Bytes of each of so many parts, as even as whole bytes can be."""
    bounds = [size_bytes * place // count for place in range(count + 1)]
    return [end - start for start, end in pairwise(bounds)]


def ring_pass(
    work: Work,
    hosts: Sequence[int],
    parts: Sequence[int],
    after: Sequence[After],
    make: Make,
    *,
    reduces: bool,
    gathers: bool,
) -> list[After]:
    """Pass parts around a ring: in each step every host sends one part on to the next.

    Args:
        work: Where the flows are added.
        hosts: In the order of the ring.
        parts: Bytes of each part, one for each host; an empty one takes no flow. Where all are empty, hosts
            wait for each other.
        after: For each host, when it has what it gives.
        make: Makes a flow.
        reduces: Each host adds its own to a part before it passes it on, in the first steps.
        gathers: In the last steps results go around. With both, it is an all-reduce of 2 (n - 1) steps.

    Returns:
        For each host, when it has all results.
    """
    count = len(hosts)
    if not any(parts):
        together = work.compute(hosts[0], 0, tuple(dict.fromkeys(each for own in after for each in own)))
        return [together] * count
    reducing = count - 1 if reduces else 0
    came: list[After] = [()] * count
    got = [list(each) for each in after]
    for step in range(reducing + (count - 1 if gathers else 0)):
        is_result = step >= reducing
        coming: list[After] = [()] * count
        for place in range(count):
            following, size_bytes = (place + 1) % count, parts[(place - step) % count]
            waits = tuple(dict.fromkeys((*came[place], *(() if step > reducing else after[place]))))
            if size_bytes:
                flow = make(hosts[place], hosts[following], size_bytes, waits, is_result)
                waits = (work.send(flow),)
            coming[following] = waits
        came = coming
        for place, each in enumerate(came):
            got[place] += each
    return _joined(work, hosts, got)


def all_to_all(
    work: Work, hosts: Sequence[int], parts: Sequence[int], after: Sequence[After], make: Make
) -> list[After]:
    """Send each other host its part at once; arguments and result are as those of `ring_pass`."""
    got = [list(each) for each in after]
    for place, source in enumerate(hosts):
        for far in range(1, len(hosts)):
            to = (place + far) % len(hosts)
            if parts[to]:
                got[to].append(work.send(make(source, hosts[to], parts[to], after[place], True)))
    return _joined(work, hosts, got)


def _joined(work: Work, hosts: Sequence[int], got: Sequence[list[int]]) -> list[After]:
    return [work.compute(host, 0, tuple(dict.fromkeys(each))) for host, each in zip(hosts, got, strict=True)]
