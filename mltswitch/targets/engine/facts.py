"""The facts that a configuration is made of, and the names of those that the engine itself understands."""

from collections.abc import Mapping
from typing import Any, Final

Fact = tuple[Any, ...]
"""(what, *place): what is set and where on its port, such as ("threshold", 6)."""
PortFacts = Mapping[Fact, Any]
"""The facts of one port, each with its value, in the order of a file. Ports that are alike share them."""
Facts = Mapping[str, PortFacts]
"""The facts of each port by its name, and under SWITCH those of the whole switch."""
SWITCH: Final = ""

TRUST: Final = "trust"
"""(trust,) → whether and how the port believes the DSCP of packets."""
MAP: Final = "map"
"""(map, DSCP) → the priority inside the switch that packets with this code point get."""
BIND: Final = "bind"
"""(bind, priority) → the queue that packets of this priority take when they leave by the port."""
SERVICE: Final = "scheduling"
"""(scheduling, queue) → STRICT, or the words for its weight."""
STRICT: Final = "strict"
THRESHOLD: Final = "threshold"
"""(threshold, queue) → the queue length from which packets are marked; None: from none."""
ROUTE: Final = "route"
"""(route, prefix, next hop) → None: a static route that a plan could have."""
DISTANCE: Final = "route with a distance"
"""(route with a distance, prefix, next hop, words) → None: a route with words behind its next hop, which no
plan has."""
FOREIGN_LINE: Final = "foreign line"
"""(foreign line, line) → None: a line of a running configuration that nobody here knows."""
