"""Senders around one receiver in virtual time: all that goes to it passes one link with a queue."""

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mltswitch.hostagent.dataplane.binding import Fields, lib, path_fields
from mltswitch.hostagent.dataplane.virtual import VirtualPlane
from tests.hostagent.dataplane.ends import SECOND, gradients

DATAGRAM_BYTES: Final = 1472
CE: Final = 3
WIRE_BYTES: Final = 66
"""Preamble, Ethernet, IPv4 and UDP."""


@dataclass
class Arrived:
    """One receive, and what its sender counts."""

    seconds: float
    share: float
    elapsed_ns: int
    """From its first packet to its last one, or to where it was closed."""
    ending: int
    resent: int
    needless: int


@dataclass
class Star:
    """`senders` and a hub; `rate_bps` and `buffer_bytes` are those of the link to the hub."""

    senders: int
    rate_bps: float
    round_trip_ns: int
    buffer_bytes: int
    loss: float = 0.0
    repair: int = lib.MLT_AT_ONCE
    burst_packets: int = 1
    control: int = lib.MLT_BBR
    told_bps: float | None = None
    """What the hub's file says of its port; None: the truth."""
    marked_bytes: float = math.inf
    """S of the link's queue: above it, what is ECN-capable is marked, and the rest dropped."""
    seed: int = 1
    now_ns: int = SECOND
    deepest_bytes: float = 0.0
    """Of the link's queue, since it was last set to 0."""
    planes: list[VirtualPlane] = field(init=False)

    def __post_init__(self) -> None:
        self._random, self._order = random.Random(self.seed), itertools.count()  # noqa: S311
        self._flying: list[tuple[int, int, int, int, bytes]] = []
        self._free_ns, self._round = 0.0, 0
        numbers = range(self.senders + 1)
        self.planes = [VirtualPlane(seed=100 * self.seed + at + 1, now_ns=self.now_ns) for at in numbers]
        self._tokens = {at: (self.planes[0].reserve(), self.planes[at].reserve()) for at in numbers[1:]}
        self._senders = {tokens[0]: at for at, tokens in self._tokens.items()}
        for at, tokens in self._tokens.items():
            for end in range(2):
                options = Fields(
                    peer_token=tokens[1 - end],
                    send_datagram_bytes=DATAGRAM_BYTES,
                    receive_datagram_bytes=DATAGRAM_BYTES,
                    ack_delay_ns=480_000 if self.rate_bps < 1e9 else 200_000,
                    repair=self.repair,
                    rate=Fields(kind=self.control, cap_bps=self.rate_bps),
                    has_credit=self.control == lib.MLT_CREDIT,
                    port_bps=self.rate_bps if self.told_bps is None else self.told_bps,
                )
                self.planes[at if end else 0].open(tokens[end], options, [path_fields("10.0.0.1", 1)])

    def limit_seconds(self, size_bytes: int) -> float:
        """Of a tensor from each sender through the link."""
        packets = self.senders * size_bytes / (DATAGRAM_BYTES - 40)
        return packets * (DATAGRAM_BYTES + WIRE_BYTES) * 8 / self.rate_bps

    def gather(
        self, size_bytes: int, *, loss_bound: float = 0.0, lts_ns: dict[int, int] | None = None
    ) -> list[Arrived]:
        """A tensor from each sender, by its number from 1; with LTs as one gather of 80 % and 30 ms."""
        data, memory = (
            gradients(size_bytes // 4),
            [np.zeros(size_bytes // 4, np.float32) for _ in self._tokens],
        )
        began_ns, self._round = self.now_ns, self._round + 1
        common = Fields(element_count=data.size, element_type=1, tensor=1, round=self._round)
        posted: dict[tuple[int, int], int] = {}
        for (at, tokens), target in zip(self._tokens.items(), memory, strict=True):
            policy = Fields(loss_bound=loss_bound, important_bound=1, hard_ns=60 * SECOND)
            if lts_ns is not None:
                gather = {
                    "number": self._round,
                    "percentage": 0.8,
                    "lt_ns": lts_ns[at],
                    "slack_ns": 30_000_000,
                }
                policy |= {"stop_rule": lib.MLT_GATHERED, "important_bound": 0, "gather": gather}
            receive = common | {"flow": tokens[0], "elements": target, "policy": policy}
            send = common | {
                "flow": tokens[1],
                "elements": data,
                "importance": lib.MLT_EDGES,
                "tos_important": 2,
                "burst_packets": self.burst_packets,
                "seed": at,
            }
            posted[0, at] = self.planes[0].post_receives([receive])[0]
            posted[1, at] = self.planes[at].post_sends([send])[0]
        results: dict[tuple[int, int], Any] = {}
        while len(results) < len(posted):
            self._step(began_ns + 60 * SECOND)
            for key, transfer in posted.items():
                plane = self.planes[key[1] if key[0] else 0]
                if key not in results and (result := plane.wait(transfer, 0)) is not None:
                    assert result.status == lib.MLT_OK, plane.text(result)
                    results[key] = result
        return [self._arrived(results[0, at], results[1, at], began_ns) for at in self._tokens]

    @staticmethod
    def _arrived(there: Any, here: Any, began_ns: int) -> Arrived:
        ended_ns = there.last_ns if there.ending == lib.MLT_COMPLETE else there.ended_ns
        return Arrived(
            seconds=(there.ended_ns - began_ns) / SECOND,
            share=there.arrived_packets / there.packets,
            elapsed_ns=ended_ns - there.first_ns,
            ending=there.ending,
            resent=here.resent_packets,
            needless=here.needless_packets,
        )

    def _step(self, end_ns: int) -> None:
        assert self.now_ns < end_ns, "time is up"
        due = [end_ns]
        for at, plane in enumerate(self.planes):
            plane.step(self.now_ns)
            for output, data in plane.outputs():
                to = 0 if at else self._senders[output.flow]
                for first in range(0, len(data), output.segment_bytes):
                    self._launch(to, output.tos, data[first : first + output.segment_bytes])
            if (timer := plane.next_timer()) is not None:
                due.append(timer)
        if self._flying:
            due.append(self._flying[0][0])
        self.now_ns = max(self.now_ns, min(due))
        while self._flying and self._flying[0][0] <= self.now_ns:
            at_ns, _, to, tos, data = heapq.heappop(self._flying)
            self.planes[to].feed(data, at_ns, tos=tos)

    def _launch(self, to: int, tos: int, data: bytes) -> None:
        out_ns = float(self.now_ns)
        if to == 0:
            begin_ns = max(self._free_ns, out_ns)
            waiting_bytes = (begin_ns - out_ns) * self.rate_bps / 8 / SECOND
            if waiting_bytes > self.buffer_bytes:
                return
            if waiting_bytes > self.marked_bytes:
                if not tos & CE:
                    return
                tos |= CE
            self.deepest_bytes = max(self.deepest_bytes, waiting_bytes)
            out_ns = self._free_ns = begin_ns + (len(data) + WIRE_BYTES) * 8 * SECOND / self.rate_bps
        if self._random.random() >= self.loss:
            arrives_ns = int(out_ns + self.round_trip_ns / 2)
            heapq.heappush(self._flying, (arrives_ns, next(self._order), to, tos, data))
