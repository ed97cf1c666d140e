"""Names of the objects that ports share: each is made of what the object says, so none is ever changed.

A port goes from one object to the next by one line, and an object that no port refers to any more is removed.
Names have at most 32 characters of A-Z, a-z, 0-9, - and _ (sonic-wred-profile.yang, sonic_types.xml).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from mltswitch.capabilities import Bandwidth
from mltswitch.targets.dell_sonic.capabilities import KILOBYTE
from mltswitch.targets.state import QueueState

PREFIX: Final = "mltswitch-"
"""Every object of ours has it, and none of anybody else's."""
QUEUE_MAP: Final = f"{PREFIX}queues"
"""The tc-queue map, which is always the same."""
UNTRUSTED: Final = f"{PREFIX}untrusted-"


def wred_policy_name(threshold_bytes: int) -> str:
    """Policy of one threshold, in KB."""
    return f"{PREFIX}wred-{threshold_bytes // KILOBYTE}"


@lru_cache(maxsize=256)
def dscp_map_name(classification: tuple[tuple[int, tuple[int, ...]], ...], *, trusted: bool = True) -> str:
    """Map of (queue, code points); an untrusted port's tells which one it would have, were it trusted."""
    return (f"{PREFIX}dscp-" if trusted else UNTRUSTED) + _digest(classification)


def trusted_twin(untrusted_name: str) -> str:
    """Name of the map that the port of an untrusted map would have."""
    return f"{PREFIX}dscp-{untrusted_name.removeprefix(UNTRUSTED)}"


def rewriting_name(dscps: tuple[int, ...], background_dscp: int) -> str:
    """Policy-map that rewrites these code points to background's."""
    return f"{PREFIX}rewrite-" + _digest((background_dscp, *dscps))


def scheduler_policy_name(queues: Sequence[QueueState]) -> str:
    """Policy of the queues' order, minimum and maximum."""
    return _scheduler_name(
        tuple((queue.queue, queue.minimum, queue.maximum) for queue in queues if not queue.is_lossless)
    )


@lru_cache(maxsize=256)
def _scheduler_name(queues: tuple[tuple[int, Bandwidth | None, Bandwidth | None], ...]) -> str:
    return f"{PREFIX}strict-" + _digest(tuple((number, str(low), str(high)) for number, low, high in queues))


def between_policy_name(queues: Mapping[int, Mapping[str, str]]) -> str:
    """Policy that stands between two while packets are led elsewhere; gone when the change is complete."""
    return f"{PREFIX}between-" + _digest(
        tuple((queue, tuple(queues[queue].items())) for queue in sorted(queues))
    )


def _digest(content: tuple[object, ...]) -> str:
    return sha256(repr(content).encode()).hexdigest()[:8]
