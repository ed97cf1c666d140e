"""Two data planes in virtual time with a network between them, and C programs of these tests."""

import subprocess
from bisect import insort
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from mltswitch.hostagent.dataplane.binding import Fields, lib, path_fields
from mltswitch.hostagent.dataplane.virtual import VirtualPlane
from mltswitch.wire.headers import ElementType

SOURCES: Final = Path(__file__).parents[3] / "mltswitch" / "hostagent" / "dataplane"
SECOND: Final = 10**9
MILLISECOND: Final = 10**6

Carry = Callable[[int, Any, bytes], bool]
"""(sender's end, struct mlt_output, one datagram) → whether it arrives."""


def build(program: Path, output: Path, *options: str) -> Path:
    """Compile a C program of these tests together with the data plane."""
    files = [str(program), *(str(path) for path in sorted(SOURCES.glob("*.c")))]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{SOURCES}", *options]
    subprocess.run(["gcc", *flags, "-o", str(output), *files, "-pthread", "-lm"], check=True)
    return output


class Ends:
    """Two ends; what one sends reaches the other after `delay_ns`. Each of `links` is a flow between them."""

    def __init__(
        self,
        *,
        paths: int = 1,
        datagram_bytes: int = 1472,
        keys: bool = False,
        rate: Fields | None = None,
        spray_random: bool = False,
        repair: int = lib.MLT_IN_PASSES,
        links: int = 1,
        has_credit: bool = False,
    ) -> None:
        self.now_ns = SECOND
        self.delay_ns = 50_000
        self.planes = [VirtualPlane(seed=1 + end, now_ns=self.now_ns) for end in range(2)]
        self.links = [[plane.reserve() for plane in self.planes] for _ in range(links)]
        self.tokens = self.links[0]
        self.flying: list[tuple[int, int, Any, bytes]] = []
        self.outputs: list[tuple[int, Any, bytes]] = []
        self.carry: Carry = lambda *_: True
        for end, plane in enumerate(self.planes):
            names = ("send_key", "receive_key") if end == 0 else ("receive_key", "send_key")
            secrets = {
                names[0]: b"a" * 16,
                names[1]: b"b" * 16,
                "send_salt": b"salt",
                "receive_salt": b"salt",
            }
            options = Fields(
                send_datagram_bytes=datagram_bytes,
                receive_datagram_bytes=datagram_bytes,
                rate=rate or Fields(kind=lib.MLT_CREDIT if has_credit else lib.MLT_TIMELY),
                has_credit=has_credit,
                spray_random=spray_random,
                repair=repair,
                silence_ns=2 * SECOND,
                **(secrets if keys else {}),
            )
            table = [path_fields(address="10.0.0.1", port=1, socket=number) for number in range(paths)]
            for tokens in self.links:
                plane.open(tokens[end], options | {"peer_token": tokens[1 - end]}, table)

    def post(
        self,
        data: Any,
        target: Any,
        *,
        policy: Fields | None = None,
        tensor: int = 1,
        round_: int = 0,
        link: int = 0,
        **send: Any,
    ) -> tuple[int, int]:
        """A send at end 0, a receive at end 1."""
        flow = {"flow": self.links[link][0]}
        sent = self.send(data, tensor=tensor, round_=round_, **flow | send)
        return sent, self.receive(target, policy=policy, tensor=tensor, round_=round_, link=link)

    def send(self, data: Any, *, tensor: int = 1, round_: int = 0, **send: Any) -> int:
        """At end 0."""
        return self.planes[0].post_sends([self._fields(0, data, tensor, round_) | send])[0]

    def receive(
        self, target: Any, *, policy: Fields | None = None, tensor: int = 1, round_: int = 0, link: int = 0
    ) -> int:
        """At end 1."""
        more = {"flow": self.links[link][1], "policy": policy or completion()}
        return self.planes[1].post_receives([self._fields(1, target, tensor, round_) | more])[0]

    def _fields(self, end: int, elements: Any, tensor: int, round_: int) -> Fields:
        kind = {8: ElementType.FLOAT64, 4: ElementType.FLOAT32, 2: ElementType.INT16, 1: ElementType.INT8}[
            elements.itemsize
        ]
        return {
            "flow": self.tokens[end],
            "elements": elements,
            "element_count": elements.size,
            "element_type": int(kind),
            "tensor": tensor,
            "round": round_,
        }

    def run(self, until: Callable[[], bool], seconds: float = 20) -> None:
        """Let time pass until something holds; fails where nothing is due any more."""
        end_ns = self.now_ns + int(seconds * SECOND)
        while True:
            due = [end_ns]
            for end, plane in enumerate(self.planes):
                plane.step(self.now_ns)
                for output, data in plane.outputs():
                    self.outputs.append((end, output, data))
                    size = output.segment_bytes
                    for at in range(0, len(data), size):
                        if self.carry(end, output, data[at : at + size]):
                            self.fly(self.delay_ns, end, output, data[at : at + size])
                timer = plane.next_timer()
                if timer is not None:
                    due.append(timer)
            if until():
                return
            if self.flying:
                due.append(self.flying[0][0])
            assert len(due) > 1, "nothing is due"
            assert self.now_ns < end_ns, "time is up"
            self.now_ns = max(self.now_ns, min(due))
            while self.flying and self.flying[0][0] <= self.now_ns:
                at_ns, end, output, data = self.flying.pop(0)
                self.planes[1 - end].feed(data, at_ns, tos=output.tos)

    def fly(self, delay_ns: int, end: int, output: Any, datagram: bytes) -> None:
        """One datagram that an end has sent."""
        insort(self.flying, (self.now_ns + delay_ns, end, output, datagram), key=itemgetter(0))

    def both(self, sent: int, received: int, seconds: float = 20) -> tuple[Any, Any]:
        """The results of a transfer once both ends are done."""
        done: dict[int, Any] = {}

        def are_done() -> bool:
            for end, transfer in enumerate((sent, received)):
                if end not in done and (result := self.planes[end].wait(transfer, 0)) is not None:
                    done[end] = result
            return len(done) == 2

        self.run(are_done, seconds)
        return done[0], done[1]


def completion(**fields: Any) -> Fields:
    """A `struct mlt_policy`; without an important bound none is asked."""
    return {"important_bound": 1, **fields}


def gradients(elements: int, seed: int = 1) -> Any:
    """Random float32, none of them 0."""
    return np.random.default_rng(seed).standard_normal(elements).astype(np.float32) + np.float32(10)


def bits(bitmap: bytes, count: int) -> Any:
    """A bitmap as booleans."""
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[:count].astype(bool)
