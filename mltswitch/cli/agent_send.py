"""`mltswitch agent send`: a tensor to one or more peers."""

import time
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from mltswitch.cli.agent_options import (
    agent_options,
    configuration_of,
    document_of,
    naming_options,
    orderly_end,
    peers_of,
    require_together,
    running,
)
from mltswitch.cli.agent_results import (
    by_peer,
    line_of,
    print_early,
    print_sent,
    rounds_as_data,
)
from mltswitch.cli.arrays import read_array
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.output import json_option, print_json, progress
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.announced import (
    MAXIMUM_ROUNDS,
    RETRY_SECONDS,
    ExchangeResult,
    Progress,
    SendOptions,
    connect_patiently,
    send_announced,
)
from mltswitch.hostagent.arguments import MAXIMUM_LAYER
from mltswitch.hostagent.control.security import check_plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import DeadlineExceededError, PeerRefusedError, PeerUnreachableError
from mltswitch.hostagent.network.netlink import interface_with
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tagging import DEFAULT_POLICY, POLICIES
from mltswitch.hostagent.tensor.elements import view_of
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_SEGMENTS
from mltswitch.units import parse_bytes
from mltswitch.wire import ElementType

DEFAULT_NAME: Final = "sender"
MAXIMUM_RANDOM_BYTES: Final = 1 << 34
OPTIONS: Final = {"layer": "--layer", "class": "--class", "priority": "--class"}
"""By the names that errors of the library have for them."""
TYPES: Final = tuple(entry.name.lower() for entry in ElementType)


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent send gradients.npy --to receiver=127.0.0.1\n"
    "  mltswitch agent send --random 25MB --rounds 10 -c agent.yaml --to host3 --to host4\n"
    "  mltswitch agent send gradients.npy -c agent.yaml --to host3 --layer 7 --burst 1"
)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE.npy]")
@click.option("--random", "random_size", metavar="SIZE", help="Instead of a file: so much of a normal law.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of --random.")
@click.option(
    "--type", "type_name", type=click.Choice(TYPES), help="Of the elements, where the file does not say it."
)
@click.option(
    "--to",
    "peers",
    multiple=True,
    required=True,
    metavar="HOST[=ADDRESS[:PORT]]",
    help="A peer, and the address or name at which it listens.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, MAXIMUM_ROUNDS),
    default=1,
    show_default=True,
    help="How often, one after the other.",
)
@click.option(
    "--layer", default="0", show_default=True, help="Number, or name in the plan's profile: gives the class."
)
@click.option("--class", "traffic_class", metavar="NAME", help="Class of the plan, whatever the layer.")
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default=DEFAULT_POLICY,
    show_default=True,
    help="Which packets are important.",
)
@click.option(
    "--burst",
    "burst_packets",
    type=click.IntRange(1, UDP_MAXIMUM_SEGMENTS),
    help="Packets that share a path and a DSCP/ECN byte; by default the plan's, else 64.",
)
@agent_options
@json_option
def send(
    file: Path | None,
    random_size: str | None,
    seed: int,
    type_name: str | None,
    peers: tuple[str, ...],
    rounds: int,
    layer: str,
    traffic_class: str | None,
    policy: str,
    burst_packets: int | None,
    config: Path | None,
    wait_seconds: float,
    deadline_seconds: float,
    metrics: str | None,
    open_metrics: bool,
    trace: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Send a tensor to peers that wait for it with `mltswitch agent recv`.

    How much may be lost on the way is the receiver's to say. Exit code 6: a peer did not get it.
    """
    require_together("seed", ["random_size"])
    element_type = None if type_name is None else ElementType[type_name.upper()]
    data, element_type = _tensor(file, random_size, seed, element_type)
    document = document_of(config, **options)
    configuration = configuration_of(document, config, DEFAULT_NAME)
    endpoints = peers_of(configuration, peers)
    _check_ways(configuration.settings, endpoints)
    names = [name for name, _ in endpoints]
    chosen = int(layer) if layer.isascii() and layer.isdigit() and len(layer) <= 5 else layer
    with naming_options(OPTIONS):
        number = configuration.classes.layer_number(chosen)
    if number > MAXIMUM_LAYER:
        raise UserInputError(f"layer {number}", where="--layer", expected=f"0-{MAXIMUM_LAYER}")
    has_two_queues = configuration.settings.two_queues is not None and traffic_class is None
    with naming_options(OPTIONS):
        dscp = None if has_two_queues else configuration.dscp(chosen, traffic_class)
    sending = SendOptions(
        dscp=dscp,
        layer=number,
        policy=policy,
        burst_packets=burst_packets or configuration.burst_packets,
        rounds=rounds,
        deadline_seconds=deadline_seconds,
        element_type=element_type,
    )
    # Who only connects listens nowhere, and leaves the ports of the file to this host's receiver.
    settings = replace(configuration.settings, listen=None)
    if document.data_port is None and not settings.per_path_sockets:
        settings = replace(settings, data_port=0)
    ended: Progress | None = None
    result: ExchangeResult | None = None

    def document_with(result: ExchangeResult, error: BaseException | None) -> dict[str, object]:
        rounds = by_peer(result)
        return {
            "name": settings.name,
            "direction": "send",
            "dscp": sending.dscp,
            "burst_packets": sending.burst_packets,
            "seconds": result.seconds,
            "cpu_seconds": result.cpu_seconds,
            "error": line_of(error),
            "peers": [{"peer": peer, "rounds": rounds_as_data(rounds.get(peer, []))} for peer in names],
        }

    with orderly_end():
        try:
            with running(settings, metrics, trace, open_metrics=open_metrics) as agent:
                progress(f"connecting to {', '.join(f'{name} at {place}' for name, place in endpoints)}")
                _connect(agent, endpoints, wait_seconds)
                ended = Progress()
                with progress_bar() as advance:
                    result = send_announced(agent, names, data, sending, advance, ended)
        except (MltswitchError, KeyboardInterrupt, SystemExit) as error:
            if ended is not None:
                until_now = result or ended.until_now()
                if as_json:
                    print_early(print_json, document_with(until_now, error))
                elif until_now.rounds:
                    print_early(print_sent, until_now)
            raise
    if as_json:
        print_json(document_with(result, result.error))
    else:
        print_sent(result)
    if result.error is not None:
        raise result.error


def _connect(agent: Agent, endpoints: Sequence[tuple[str, Endpoint]], wait_seconds: float) -> None:
    """To all of them; raises AgentError, which says how long was tried and why it came to nothing."""
    end = time.monotonic() + wait_seconds
    for name, endpoint in endpoints:
        started = time.monotonic()
        try:
            connect_patiently(agent, [(name, endpoint)], max(0.0, end - started))
        except (PeerUnreachableError, PeerRefusedError, DeadlineExceededError) as error:
            tried_seconds = time.monotonic() - started
            is_last_word = isinstance(error, PeerRefusedError) and error.is_lasting
            if is_last_word or tried_seconds < RETRY_SECONDS:  # once
                raise
            raise type(error)(
                f"no connection, tried for {tried_seconds:.1f} s; the last time: {error.what}",
                peer=error.peer,
            ) from None


def _check_ways(settings: AgentSettings, endpoints: Sequence[tuple[str, Endpoint]]) -> None:
    """Raises UserInputError for a peer on another machine where our data would come from loopback: the kernel
    itself says no more than that an argument is invalid, and trying again mends nothing."""
    for name, endpoint in endpoints:
        check_plaintext(settings.security, endpoint)
        is_at_home = all(ip_address(address).is_loopback for address in settings.addresses)
        if is_at_home and not endpoint.ip.is_loopback and interface_with(endpoint.address) is None:
            raise UserInputError(
                f"data from {settings.addresses[0]} does not leave this machine, and {name} is at {endpoint}",
                where="--address",
                expected="this host's address in that network",
                hint="give it there, or as `addresses` in the file (-c)",
            )


def _tensor(
    file: Path | None, random_size: str | None, seed: int, element_type: ElementType | None
) -> tuple[NDArray[Any], ElementType | None]:
    if (file is None) == (random_size is None):
        raise UserInputError("a tensor is a file or --random", where="FILE.npy", expected="one of them")
    if file is not None:
        data = read_array(file)
        try:
            view_of(data, writable=False, element_type=element_type)
        except MltswitchError as error:
            raise UserInputError(
                error.what,
                where=str(file),
                expected=error.expected,
                hint=error.hint.replace("element_type", "--type"),
            ) from None
        return data, element_type
    try:
        return random_tensor(str(random_size), seed, element_type or ElementType.FLOAT32)
    except MemoryError:
        raise UserInputError(
            f"{random_size} and what making it takes do not fit into this host's memory", where="--random"
        ) from None


def random_tensor(size: str, seed: int, element_type: ElementType) -> tuple[NDArray[Any], ElementType | None]:
    """Normally distributed, like gradients, and the type that it does not say; raises UserInputError."""
    try:
        size_bytes = parse_bytes(size)
    except ValueError as error:
        raise UserInputError(str(error), where="--random") from None
    if not element_type.size_bytes <= size_bytes <= MAXIMUM_RANDOM_BYTES:
        raise UserInputError(
            f"{size_bytes} bytes",
            where="--random",
            expected=f"{element_type.size_bytes}-{MAXIMUM_RANDOM_BYTES}",
        )
    count = size_bytes // element_type.size_bytes
    generator = np.random.default_rng(seed)
    match element_type:
        case ElementType.INT8:
            return generator.integers(-128, 128, count, np.int8), None
        case ElementType.FLOAT64:
            return generator.standard_normal(count), None
        case ElementType.FLOAT16:
            return generator.standard_normal(count, np.float32).astype(np.float16), None
        case ElementType.BFLOAT16:
            bits = generator.standard_normal(count, np.float32).view(np.uint32) >> np.uint32(16)
            return bits.astype(np.uint16), ElementType.BFLOAT16
        case _:
            return generator.standard_normal(count, np.float32), None
