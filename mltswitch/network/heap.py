"""Pending events, at most one for each port or flow: a 4-ary heap that knows where each event lies."""

from mltswitch.network.records import NONE, Record, entry_at, place_at, wide
from mltswitch.queueing.jit import jit


@jit
def set_event(world: Record, heap: Record, which: int, time: int) -> None:
    """The event of a port or flow is at this time, earlier or later than before."""
    order = world.order
    world.order = order + 1
    place = wide(place_at(heap.places, which).place)
    if place == NONE:
        place = heap.count
        heap.count = place + 1
        _rise(heap, place, time, order, which)
    elif time < entry_at(heap.entries, place).time:
        _rise(heap, place, time, order, which)
    else:
        _sink(heap, place, time, order, which)


@jit
def remove_event(heap: Record, which: int) -> None:
    """The port or flow has no event any more."""
    place = wide(place_at(heap.places, which).place)
    if place == NONE:
        return
    place_at(heap.places, which).place = NONE
    count = heap.count - 1
    heap.count = count
    if place < count:
        last = entry_at(heap.entries, count)
        time, order, moved = last.time, last.order, last.id
        old = entry_at(heap.entries, place)
        if time < old.time or (time == old.time and order < old.order):
            _rise(heap, place, time, order, moved)
        else:
            _sink(heap, place, time, order, moved)


@jit
def _put(heap: Record, place: int, time: int, order: int, which: int) -> None:
    entry = entry_at(heap.entries, place)
    entry.time = time
    entry.order = order
    entry.id = which
    place_at(heap.places, which).place = place


@jit
def _rise(heap: Record, place: int, time: int, order: int, which: int) -> None:
    while place > 0:
        above = (place - 1) >> 2
        parent = entry_at(heap.entries, above)
        if parent.time < time or (parent.time == time and parent.order < order):
            break
        _put(heap, place, parent.time, parent.order, parent.id)
        place = above
    _put(heap, place, time, order, which)


@jit
def _sink(heap: Record, place: int, time: int, order: int, which: int) -> None:
    count = heap.count
    while True:
        child = 4 * place + 1
        if child >= count:
            break
        best = child
        first = entry_at(heap.entries, child)
        best_time, best_order = first.time, first.order
        for other in range(child + 1, min(child + 4, count)):
            entry = entry_at(heap.entries, other)
            if entry.time < best_time or (entry.time == best_time and entry.order < best_order):
                best, best_time, best_order = other, entry.time, entry.order
        if time < best_time or (time == best_time and order < best_order):
            break
        _put(heap, place, best_time, best_order, entry_at(heap.entries, best).id)
        place = best
    _put(heap, place, time, order, which)
