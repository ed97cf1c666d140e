"""Sites in namespaces of their own, and the links of a WAN between them: star.c with cables.

A site has one address, 10.1.0.N, for all links: between neighbours packets take the link between them, else
the way with the fewest links, the fastest of these at first. Each direction of a link has a rate, a queue, a
delay and random loss.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab.namespaces import NamespaceHandle
from mltswitch.lab.programs import Program
from mltswitch.lab.star import DSCPS, Queue, Star, running_switch, set_up
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.fastest import networkx
from mltswitch.overlay.wan import Wan
from mltswitch.units import NANOSECONDS

CONTROL_DSCP, GRADIENT_DSCP = 40, 10
NO_LIMIT_BYTES: Final = 1 << 40
"""The limit of a class, which is none: a link's own queue is the limit."""


class Carried(NamedTuple):
    """What became of packets at a link."""

    size_bytes: int
    """With Ethernet's header."""
    dropped: int
    """For which its queue had no room."""
    lost: int
    """By the link's random loss."""


class WanNetwork(Star):
    """The sites, and what is between them; it takes the place of a star in a bench."""

    def __init__(self, hosts: Sequence[NamespaceHandle], switch: Program, wan: Wan) -> None:
        super().__init__(hosts, 1, switch)
        self.wan: Final = wan
        self.overlay: Overlay = wan.overlay()
        """The network with the rates, delays and losses that its links have now."""
        self.draws = 0
        """How often its rates were drawn anew."""
        self._changing = threading.Lock()
        self._places: Final = {name: number for number, name in enumerate(wan.nodes, 1)}
        self._queues: Final = {(link.source, link.target): link.queue_bytes for link in wan.links}
        super().set_queues([Queue(NO_LIMIT_BYTES, NO_LIMIT_BYTES, tuple(range(DSCPS)))])
        self.take(self.overlay)
        for at, to, onward in _hops(self.overlay):
            self._obey(f"hop {self._places[at]} {self._places[to]} {self._places[onward]}")

    def draw(self, number: int) -> None:
        """The rates of a draw, of links whose rates are drawn, until the next one."""
        drawn = {(link.source, link.target) for link in self.wan.links if link.rate_bps is None}
        rates_bps = {(link.source, link.target): link.rate_bps for link in self.wan.overlay(number).links}
        with self._changing:
            links = tuple(
                link.model_copy(update={"rate_bps": rates_bps[link.source, link.target]})
                if (link.source, link.target) in drawn
                else link
                for link in self.overlay.links
            )
            self.take(self.overlay.model_copy(update={"links": links}))
            self.draws = number

    def check(self) -> None:
        """Raises MachineError where what carries the packets has ended."""
        if not self._switch.is_running:
            raise MachineError("what carried its packets has ended", where="WAN lab")

    def take(self, overlay: Overlay) -> None:
        """Set the rates, delays and losses of the links to this overlay's; what is in a queue stays there."""
        for link in overlay.links:
            ends = link.source, link.target
            self._obey(
                f"cable {self._places[link.source]} {self._places[link.target]} {link.rate_bps} "
                f"{round(link.delay_seconds * NANOSECONDS)} {link.loss} {self._queues[ends]}"
            )
        self.overlay = overlay

    def change(self, source: str, target: str, **update: float) -> None:
        """One link's `rate_bps`, `delay_seconds` or `loss`; raises UserInputError where there is none."""
        where = f"link {source} to {target}"
        with self._changing:
            links = [*self.overlay.links]
            for at, link in enumerate(links):
                if (link.source, link.target) == (source, target):
                    data = {"rate" if name == "rate_bps" else name: value for name, value in update.items()}
                    try:
                        links[at] = type(link).model_validate(link.model_dump(by_alias=True) | data)
                    except ValidationError as error:
                        raise UserInputError(plain_words(error.errors()[0]), where=where) from None
                    self.take(self.overlay.model_copy(update={"links": tuple(links)}))
                    return
        raise UserInputError("there is none", where=where)

    def carried(self) -> Mapping[tuple[str, str], Carried]:
        """What became of the packets at each link since this was asked last."""
        names = self.wan.nodes
        return {
            (names[source - 1], names[target - 1]): Carried(*counts)
            for source, target, *counts in self._obey("cables")["cables"]
        }

    # As a bench's network: the links say all of this

    def set_rate(self, bits_per_second: int) -> None:
        """Does nothing: each link has a rate of its own."""

    def set_round_trip(self, seconds: float, own_seconds: float) -> None:
        """Does nothing: each link has a delay of its own."""

    def set_loss(self, probability: float, path: int | None = None) -> None:
        """Does nothing: each link has a loss of its own."""

    def set_queues(self, queues: Sequence[Queue]) -> None:
        """Does nothing: a link serves all classes alike."""

    def set_buffer(self, size_bytes: int) -> None:
        """Does nothing: each link has a queue of its own."""


def agent_fields(address: str, port: int, line_bps: int) -> dict[str, Any]:
    """The configuration of an agent on a site, as plain data; links serve its classes alike."""
    return {
        "listen": f"{address}:{port}",
        "addresses": [address],
        "line_rate": line_bps,
        "classes": {"control_dscp": CONTROL_DSCP, "gradient_dscp": [GRADIENT_DSCP]},
        "plaintext": True,
    }


@contextmanager
def running_wan(wan: Wan, prefix: str = "", *, is_changing: bool = False) -> Iterator[WanNetwork]:
    """Sites and links, made here and removed at the end; raises MachineError.

    Args:
        wan: what they are.
        prefix: of the names of namespaces, which end as sites are called; empty: one of this process.
        is_changing: whether rates are drawn anew as the document says.
    """
    with running_switch(len(wan.nodes), prefix, wan.nodes) as (names, switch):
        network = WanNetwork(names, switch, wan)
        set_up(network)
        is_over = threading.Event()
        every_seconds = wan.changes.every_seconds if wan.changes is not None and is_changing else None
        thread = threading.Thread(target=_draw_anew, args=(network, every_seconds, is_over), daemon=True)
        thread.start()
        try:
            yield network
        finally:
            is_over.set()
            thread.join()


def _draw_anew(network: WanNetwork, every_seconds: float | None, is_over: threading.Event) -> None:
    if every_seconds is None:
        return
    due_seconds = time.monotonic() + every_seconds
    while not is_over.wait(due_seconds - time.monotonic()):
        try:
            network.draw(network.draws + 1)
        except MachineError:  # the switch has ended, which others hear of
            return
        due_seconds += every_seconds


def _hops(overlay: Overlay) -> Iterator[tuple[str, str, str]]:
    """At which site what goes to which one goes on to which neighbour."""
    found = networkx()
    graph: Any = found.DiGraph()
    for link in overlay.links:
        graph.add_edge(link.source, link.target, rate=link.rate_bps)
    for to in graph:
        far = found.single_source_shortest_path_length(graph.reverse(copy=False), to)
        for at in graph:
            if at != to:
                near = [each for each in graph[at] if far[each] == far[at] - 1]
                yield at, to, max(near, key=lambda each: (graph[at][each]["rate"], each))
