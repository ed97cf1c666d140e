"""The sender's end of an exchange: a tensor to one or more peers."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.app.transfer import Announcement, Exchange
from mltswitch.hostagent import Endpoint, SendRequest, Transfer
from mltswitch.wire import ElementType

MOST_RANDOM_BYTES: Final = 1 << 34


@dataclass(kw_only=True, eq=False)
class Sending(Exchange):
    """The sender's end of an exchange: rounds of tensors that this host posts to its receivers."""

    announcement: Announcement
    endpoints: Mapping[str, Endpoint]
    dscp: int | None
    """DSCP of the packets; None: the code points of the two queues are used."""
    request: SendRequest
    """The send request of every round, apart from the round's number."""
    is_connected: bool = False

    def begin(self) -> Mapping[str, int]:
        """Connect to the peers and announce the tensor; returns the number of rounds with each."""
        self.options.tell(
            f"connecting to {', '.join(f'{name} at {at}' for name, at in self.endpoints.items())}"
        )
        until = time.monotonic() + self.options.wait_seconds
        for name, endpoint in self.endpoints.items():
            self.agent.connect(name, endpoint, timeout_seconds=max(0.1, until - time.monotonic()))
        self.is_connected = True
        for name in self.endpoints:
            self.agent.send_message(name, self.announcement.model_dump_json().encode())
        return dict.fromkeys(self.endpoints, self.announcement.rounds)

    def post(self, peer: str, number: int) -> Transfer:
        """Post the tensor for a round."""
        return self.agent.post_sends(peer, [replace(self.request, round_number=number)])[0]

    def completed(self, peer: str, number: int) -> None:
        """Leave a peer after its last round."""
        if number == self.announcement.rounds:  # a receiver waits to be left
            self.agent.disconnect(peer, "done")

    def described(self) -> dict[str, Any]:
        """The class and the bursts of the tensor, for the printed document."""
        head = {"direction": "send", "dscp": self.dscp, "burst_packets": self.options.settings.burst_packets}
        return {**head, "peers": {name: {} for name in self.endpoints}} if self.is_connected else {}


def random_tensor(size_bytes: int, kind: ElementType) -> NDArray[Any]:
    """A tensor of normally distributed values, like gradients, or of evenly distributed whole numbers.

    It is always the same. Raises ValueError.
    """
    if not kind.size_bytes <= size_bytes <= MOST_RANDOM_BYTES:
        raise ValueError(f"{size_bytes} bytes are not {kind.size_bytes} to {MOST_RANDOM_BYTES}")
    count, generator = size_bytes // kind.size_bytes, np.random.default_rng(1)
    if kind is ElementType.BYTES or kind.name.startswith("INT"):
        return generator.integers(0, 128, count, "uint8" if kind is ElementType.BYTES else kind.name.lower())
    drawn = generator.standard_normal(count, np.float64 if kind is ElementType.FLOAT64 else np.float32)
    if kind is ElementType.BFLOAT16:
        return (drawn.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return drawn.astype(kind.name.lower(), copy=False)
