"""The state of a switch whose queues are configured in mode `tx-queue`.

Rendering sees a state, not the hardware; the chip decides this one word, so the type of the state says it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mltswitch.targets.eos.capabilities import SHARED_QUEUE, UNICAST_QUEUE
from mltswitch.targets.state import PortState, RouteState, SwitchState


@dataclass(frozen=True, slots=True, eq=False)
class SharedQueueState(SwitchState):
    """As `SwitchState`, on a chip with one kind of queue; a `SwitchState` has `uc-tx-queue`."""


def queue_word(state: SwitchState) -> str:
    """The command that opens a queue's mode."""
    return SHARED_QUEUE if isinstance(state, SharedQueueState) else UNICAST_QUEUE


def switch_state(
    word: str, ports: Iterable[PortState], routes: Iterable[RouteState], hardware: str = ""
) -> SwitchState:
    """State of a switch whose queues' mode is opened by `word`; without ports it does not matter."""
    own = tuple(ports)
    kind = SharedQueueState if word == SHARED_QUEUE and own else SwitchState
    return kind(own, tuple(routes), hardware=hardware)
