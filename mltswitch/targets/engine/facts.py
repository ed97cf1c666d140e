"""The facts (settings) that a configuration consists of, and the names of those that the engine knows."""

from collections.abc import Mapping
from typing import Any, Final

Fact = tuple[Any, ...]
"""The key of a setting: (what, *place), what is set and where on its port, such as ("threshold", 6)."""
PortFacts = Mapping[Fact, Any]
"""The facts of one port, each with its value, in the order of a file. Ports that are alike share them."""
Facts = Mapping[str, PortFacts]
"""The facts of each port by its name, and under SWITCH those of the whole switch."""
SWITCH: Final = ""

TRUST: Final = "trust"
"""Name of a fact: (trust,) → whether and how the port believes the DSCP of packets."""
MAP: Final = "map"
"""Name of a fact: (map, DSCP) → the switch's internal priority of packets with this DSCP."""
BIND: Final = "bind"
"""Name of a fact: (bind, priority) → the queue of packets of this priority when they leave by the port."""
SERVICE: Final = "scheduling"
"""Name of a fact: (scheduling, queue) → STRICT, or the words for the queue's weight."""
STRICT: Final = "strict"
THRESHOLD: Final = "threshold"
"""Name of a fact: (threshold, queue) → the queue length from which packets are marked; None: never marked."""
ROUTE: Final = "route"
"""Name of a fact: (route, prefix, next hop) → None, a static route that a plan could have."""
DISTANCE: Final = "route with a distance"
"""Name of a fact: (route with a distance, prefix, next hop, words) → None, a route with words behind its next
hop, which no plan has."""
FOREIGN_LINE: Final = "foreign line"
"""Name of a fact: (foreign line, line) → None, an unknown line of a running configuration."""
