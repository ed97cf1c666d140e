"""Which static routes mltswitch manages on a switch OS whose configuration cannot mark them."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from typing import TypeVar

from mltswitch.targets.state import RouteState, SegmentRouteState

_Route = TypeVar("_Route", RouteState, SegmentRouteState)


class OwnPrefixes:
    """The prefixes of a plan's routes; a route within one of them is managed by mltswitch.

    A more specific route within an alias prefix takes packets off the plan's path, as a second next hop does:
    neither may stay. Whatever lies outside belongs to somebody else, even if an older plan wrote it.
    """

    def __init__(self, wanted: Iterable[RouteState | SegmentRouteState]) -> None:
        self._prefixes = {route.prefix for route in wanted}
        self._lengths = sorted({prefix.prefixlen for prefix in self._prefixes})

    def __contains__(self, prefix: object) -> bool:
        """Whether a route to this prefix is ours."""
        return isinstance(prefix, IPv4Network | IPv6Network) and any(
            length <= prefix.prefixlen and prefix.supernet(new_prefix=length) in self._prefixes
            for length in self._lengths
        )


def in_order_of(wanted: Iterable[_Route], found: Iterable[_Route]) -> tuple[_Route, ...]:
    """`found`, the plan's routes first and in its order; of two to one prefix the foreign one is last."""
    place = {route: index for index, route in enumerate(wanted)}
    return tuple(
        sorted(found, key=lambda route: (place.get(route, len(place)), route.prefix, route.next_hop))
    )
