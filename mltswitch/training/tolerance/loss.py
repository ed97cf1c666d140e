"""Drops packets of a rank's gradients as the network would: whole packets, important by the agent's rule.

A layer's gradients are cut where the agent cuts them, and what is lost reads as 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.wire import AGENT_HEADER_BYTES
from mltswitch.wire.internet import IPV4_HEADER_BYTES, UDP_HEADER_BYTES

PAYLOAD_BYTES: Final = 1500 - IPV4_HEADER_BYTES - UDP_HEADER_BYTES - AGENT_HEADER_BYTES
"""Gradient bytes in one packet over IPv4 with the usual MTU."""
SAMPLE_OF: Final = 20
LEAST_SAMPLE: Final = 64
MOST_SAMPLE: Final = 1024
"""The most packets sampled for the threshold of importance; one packet in 20 is, within the two bounds, as by
the agent."""

Gradient = NDArray[np.float32]
Flags = NDArray[np.bool_]


class Importance(StrEnum):
    """Which packets of a layer may be lost."""

    ANY = "any"
    UNIMPORTANT = "unimportant"
    IMPORTANT = "important"


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss of one kind of packets of a range of layers, in every round and at every rank."""

    first_layer: int
    last_layer: int
    """The last layer of the range; layers count from 0 in forward order, and both ends are included."""
    importance: Importance
    ratio: float
    """Share of the packets of that kind, 0 to 1."""


@dataclass(slots=True)
class Tally:
    """Counts of packets over one training."""

    packets: int = 0
    """Number of packets of the layers that may lose some."""
    eligible: int = 0
    """Number of packets with the importance that may be lost."""
    lost: int = 0


def important_packets(gradient: Gradient, per_packet: int, start: int) -> Flags:
    """The agent's rule: a packet is important unless its mean |g| lies below the median of a sample of means.

    MLT (section 4.2.2) compares with the median gradient, which marks nearly all packets important; the
    median of packet means splits them in the middle.

    Args:
        gradient: One layer's gradients, flat.
        per_packet: Elements of a whole packet; the last one may be shorter.
        start: The packet where the sample begins; samples are spread evenly from there.
    """
    whole = len(gradient) // per_packet * per_packet
    magnitudes = np.abs(gradient)
    means = magnitudes[:whole].reshape(-1, per_packet).mean(axis=1)
    if whole < len(gradient):
        means = np.append(means, magnitudes[whole:].mean())
    wanted = min(max(len(means) // SAMPLE_OF, LEAST_SAMPLE), MOST_SAMPLE, len(means))
    sample = means[(start + np.arange(wanted) * len(means) // wanted) % len(means)]
    threshold = np.partition(sample, wanted // 2)[wanted // 2]
    return np.asarray(~(means < threshold))


def lose(
    gradients: Sequence[Gradient],
    per_packet: Sequence[int],
    losses: Sequence[Loss],
    rng: np.random.Generator,
    tally: Tally,
) -> None:
    """Set the gradients of lost packets to 0, in place.

    Of n packets of a loss's kind exactly floor(ratio · n) or one more are lost, so that ratio · n is the mean
    however few packets a layer has. Which ones is drawn anew for each call. Importance is that of the
    gradients before any loss.

    Args:
        gradients: One rank's gradients in one round: a flat array for each layer, in forward order.
        per_packet: Elements of a whole packet, for each layer.
        losses: What to lose; their ranges may overlap.
        rng: Draws packets; one for each rank, so that ranks lose independently.
        tally: Counts what was lost.
    """
    kinds = [_kinds(gradients, per_packet, loss, rng) for loss in losses]
    for loss, flags in zip(losses, kinds, strict=True):
        owners = np.concatenate([np.full(len(each), layer) for layer, each in flags])
        packets = np.concatenate([np.arange(len(each)) for _, each in flags])
        eligible = np.flatnonzero(np.concatenate([each for _, each in flags]))
        count = int(loss.ratio * len(eligible) + rng.random())
        for index in rng.choice(eligible, min(count, len(eligible)), replace=False):
            layer, first = owners[index], packets[index] * per_packet[owners[index]]
            gradients[layer][first : first + per_packet[layer]] = 0
        tally.packets += len(owners)
        tally.eligible += len(eligible)
        tally.lost += min(count, len(eligible))


def _kinds(
    gradients: Sequence[Gradient], per_packet: Sequence[int], loss: Loss, rng: np.random.Generator
) -> list[tuple[int, Flags]]:
    """For each layer of a loss: its number, and a flag for each packet that may be lost."""
    kinds = []
    for layer in range(loss.first_layer, loss.last_layer + 1):
        packets = -(-len(gradients[layer]) // per_packet[layer])
        flags = np.ones(packets, dtype=np.bool_)
        if loss.importance is not Importance.ANY:
            flags = important_packets(gradients[layer], per_packet[layer], int(rng.integers(packets)))
        kinds.append((layer, ~flags if loss.importance is Importance.UNIMPORTANT else flags))
    return kinds
