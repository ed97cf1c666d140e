"""A WAN on one machine: sites as network namespaces, joined by star.c, which emulates the links between them.

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
"""Limit of a class's queue, too high to be reached: a link's own queue is the limit."""


class Carried(NamedTuple):
    """Counters of one link: packets carried, and packets dropped or lost."""

    size_bytes: int
    """Bytes carried, with Ethernet headers."""
    dropped: int
    """Packets dropped because the link's queue was full."""
    lost: int
    """Packets lost by the link's random loss."""


class WanNetwork(Star):
    """The sites of a WAN and the links between them, usable in place of a `Star` in a measurement."""

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
        """Set the rates of the draw with this number on all links whose rates are drawn."""
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
        """Raises MachineError if the program that carries the packets has ended."""
        if not self._switch.is_running:
            raise MachineError("what carried its packets has ended", where="WAN lab")

    def take(self, overlay: Overlay) -> None:
        """Set the links' rates, delays and losses to this overlay's; queued packets stay queued."""
        for link in overlay.links:
            ends = link.source, link.target
            self._obey(
                f"cable {self._places[link.source]} {self._places[link.target]} {link.rate_bps} "
                f"{round(link.delay_seconds * NANOSECONDS)} {link.loss} {self._queues[ends]}"
            )
        self.overlay = overlay

    def change(self, source: str, target: str, **update: float) -> None:
        """Set `rate_bps`, `delay_seconds` or `loss` of one link; raises UserInputError if there is none."""
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
        """Counters of each link, by source and target, since the last call."""
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
    """Configuration of a host agent on a site, as plain data; all its classes are equal, as on the links."""
    return {
        "listen": f"{address}:{port}",
        "addresses": [address],
        "line_rate": line_bps,
        "classes": {"control_dscp": CONTROL_DSCP, "gradient_dscp": [GRADIENT_DSCP]},
        "plaintext": True,
    }


@contextmanager
def running_wan(wan: Wan, prefix: str = "", *, is_changing: bool = False) -> Iterator[WanNetwork]:
    """Make a WAN's sites and links, and remove them when the block ends; raises MachineError.

    Args:
        wan: the WAN document with the sites and links.
        prefix: prefix of the namespaces' names, which end in the sites'; empty: unique to this process.
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
