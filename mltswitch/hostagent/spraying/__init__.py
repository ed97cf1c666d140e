"""Spraying: the paths to a peer, what names them on the wire, and how bursts are divided."""

from typing import Final

MOST_PATHS: Final = 64
"""Between two hosts (MLT_MOST_PATHS of the data plane)."""
FIRST_SOURCE_PORT: Final = 61_000
"""Of the mode `entropy`: Linux hands out 32768 to 60999 by itself (ip_local_port_range)."""
LARGEST_FIRST_SOURCE_PORT: Final = (1 << 16) - MOST_PATHS
LEAST_SOURCE_PORTS: Final = 16
