"""`mltswitch agent send`: a tensor to one or more peers."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from mltswitch.cli.agent_options import RunOptions, agent_options, naming_options, require_way_out
from mltswitch.cli.agent_transfer import MOST_ROUNDS, TENSOR, Announcement, Exchange
from mltswitch.cli.arrays import read_array
from mltswitch.cli.output import progress
from mltswitch.errors import UserInputError
from mltswitch.hostagent import AgentConfig, Endpoint, SendRequest, Transfer
from mltswitch.hostagent.elements import memory_of
from mltswitch.hostagent.endpoint import host_name_problem
from mltswitch.hostagent.tagging.policies import POLICIES
from mltswitch.units import parse_bytes
from mltswitch.wire import ElementType

MOST_RANDOM_BYTES: Final = 1 << 34
TYPES: Final = tuple(entry.name.lower() for entry in ElementType)


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent send gradients.npy --to receiver=127.0.0.1\n"
    "  mltswitch agent send --random 25MB --rounds 10 -c agent.yaml --to host3 --to host4\n"
    "  mltswitch agent send gradients.npy -c agent.yaml --to host3 --layer 7 --burst 1"
)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE.npy]")
@click.option("--random", "random_size", metavar="SIZE", help="Instead of a file: so much of a normal law.")
@click.option("--type", "type_name", type=click.Choice(TYPES), help="Of elements, where no file says it.")
@click.option("--to", "hosts", multiple=True, required=True, metavar="HOST[=ADDRESS[:PORT]]", help="A peer.")
@click.option("--rounds", type=click.IntRange(1, MOST_ROUNDS), default=1, help="How often; by default once.")
@click.option("--layer", default="0", help="Number, or name in the plan's profile: gives the class.")
@click.option(
    "--policy", "importance", type=click.Choice(list(POLICIES)), help="Which packets are important."
)
@click.option("--burst", "burst_packets", type=int, help="Packets that share a path and a DSCP/ECN byte.")
@agent_options
def send(
    hosts: tuple[str, ...], rounds: int, layer: str, importance: str | None, run: RunOptions, **tensor: Any
) -> None:
    """Send a tensor to peers that wait with `agent recv`.

    How much may be lost on the way is the receiver's to say. Exit code 6: a peer did not get it.
    """
    data, kind = _tensor(**tensor)
    settings = run.settings("sender")
    number = int(layer) if layer.isascii() and layer.isdigit() and len(layer) <= 5 else layer
    with naming_options("layer"):
        dscp = settings.dscp(number)
    # The port of the file is this host's receiver's.
    here = str(Endpoint(settings.listen_at.address, 0))
    about = {"element_type": kind.name.lower(), "dtype": data.dtype.str, "shape": data.shape}
    _Sending(
        settings=settings.model_copy(update={"listen": here}),
        options=run,
        announcement=Announcement.model_validate({"rounds": rounds, **about}),
        endpoints=_endpoints(settings, hosts),
        dscp=None if settings.two_queues is not None else dscp,
        request=SendRequest(
            data=data,
            tensor=TENSOR,
            layer=number,
            importance=importance,
            deadline_seconds=run.deadline_seconds,
            element_type=kind,
        ),
    ).run()


@dataclass(kw_only=True, eq=False)
class _Sending(Exchange):
    """The sender's end."""

    announcement: Announcement
    endpoints: Mapping[str, Endpoint]
    dscp: int | None
    """None: as two queues have it."""
    request: SendRequest
    """Of each round, but for its number."""
    is_connected: bool = False

    def begin(self) -> Mapping[str, int]:
        progress(f"connecting to {', '.join(f'{name} at {at}' for name, at in self.endpoints.items())}")
        until = time.monotonic() + self.options.wait_seconds
        for name, endpoint in self.endpoints.items():
            self.agent.connect(name, endpoint, timeout_seconds=max(0.1, until - time.monotonic()))
        self.is_connected = True
        for name in self.endpoints:
            self.agent.send_message(name, self.announcement.model_dump_json().encode())
        return dict.fromkeys(self.endpoints, self.announcement.rounds)

    def post(self, peer: str, number: int) -> Transfer:
        return self.agent.post_sends(peer, [replace(self.request, round_number=number)])[0]

    def completed(self, peer: str, number: int) -> None:
        if number == self.announcement.rounds:  # a receiver waits to be left
            self.agent.disconnect(peer, "done")

    def described(self) -> dict[str, Any]:
        head = {"direction": "send", "dscp": self.dscp, "burst_packets": self.settings.burst_packets}
        return {**head, "peers": {name: {} for name in self.endpoints}} if self.is_connected else {}


def _endpoints(settings: AgentConfig, texts: tuple[str, ...]) -> Mapping[str, Endpoint]:
    """Of options `NAME`, `NAME=ADDRESS:PORT` or `NAME=HOST:PORT`; raises UserInputError."""
    found: dict[str, Endpoint] = {}
    for name, separator, place in (text.partition("=") for text in texts):
        where = f"peer {name[:60]}"
        if problem := host_name_problem(name) or ("is named twice" if name in found else ""):
            raise UserInputError(problem, where=where)
        there = settings.endpoint(name, place if separator else None)
        require_way_out(settings, name, there)
        found[name] = there
    return found


def _tensor(
    *, file: Path | None, random_size: str | None, type_name: str | None
) -> tuple[NDArray[Any], ElementType]:
    if (file is None) == (random_size is None):
        raise UserInputError("a tensor is a file or --random", where="FILE.npy", expected="one of them")
    if file is not None:
        data = read_array(file)
        if data.dtype.kind not in "biufc":
            raise UserInputError(f"has elements of type {data.dtype}", where=str(file), expected="numbers")
        try:
            return data, memory_of(data, element_type=type_name).element_type
        except UserInputError as error:
            error.where = str(file)
            raise
    kind = ElementType[(type_name or "float32").upper()]
    try:
        return random_tensor(parse_bytes(random_size), kind), kind
    except (ValueError, MemoryError) as error:
        raise UserInputError(str(error), where="--random") from None


def random_tensor(size_bytes: int, kind: ElementType) -> NDArray[Any]:
    """Normally distributed, like gradients; whole numbers evenly; always the same. Raises ValueError."""
    if not kind.size_bytes <= size_bytes <= MOST_RANDOM_BYTES:
        raise ValueError(f"{size_bytes} bytes are not {kind.size_bytes} to {MOST_RANDOM_BYTES}")
    count, generator = size_bytes // kind.size_bytes, np.random.default_rng(1)
    if kind is ElementType.BYTES or kind.name.startswith("INT"):
        return generator.integers(0, 128, count, "uint8" if kind is ElementType.BYTES else kind.name.lower())
    drawn = generator.standard_normal(count, np.float64 if kind is ElementType.FLOAT64 else np.float32)
    if kind is ElementType.BFLOAT16:
        return (drawn.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return drawn.astype(kind.name.lower(), copy=False)
