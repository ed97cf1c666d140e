"""`mltswitch agent send` and `recv`: a tensor between hosts."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from numpy.typing import NDArray

from mltswitch.app.arrays import read_array
from mltswitch.app.receiving import Receiving, check_output
from mltswitch.app.sending import Sending, random_tensor
from mltswitch.app.transfer import (
    MOST_ROUNDS,
    SIGNAL_EXIT_CODE,
    TENSOR,
    Announcement,
    Exchange,
    Round,
    reason_of,
)
from mltswitch.cli import discard_output
from mltswitch.cli.agent_options import RunOptions, naming_options, require_way_out
from mltswitch.cli.command import argument, command, option
from mltswitch.cli.options import PATH, SIZE, NumberRange
from mltswitch.cli.output import console, figure, last_words, print_json, table
from mltswitch.cli.strangers import Strangers
from mltswitch.errors import MltswitchError, UserInputError, printable
from mltswitch.hostagent import AgentConfig, Endpoint, SendRequest
from mltswitch.hostagent.elements import memory_of
from mltswitch.hostagent.endpoint import host_name_problem
from mltswitch.hostagent.tagging.policies import POLICIES
from mltswitch.hostagent.telemetry.trace import plain
from mltswitch.units import format_ratio, parse_bytes
from mltswitch.wire import ElementType

BELOW_ONE: Final = NumberRange(0, 1, max_open=True)
SUMS: Final = ("important_packets", "packets_resent", "packets_duplicate", "packets_marked")
"""Fields of TransferStatistics, for the columns that follow `packets`; `-`: what this end does not know."""
COLUMNS: Final = (
    "peer | rounds # | size [MB] | median [ms] | longest [ms] | goodput [Gbit/s] | packets # | important # | "
    "sent again # | twice # | CE # | missing # | result"
)


@command(
    "mltswitch agent send gradients.npy --to receiver=127.0.0.1",
    "mltswitch agent send --random 25MB --rounds 10 -c agent.yaml --to host3 --to host4",
    "mltswitch agent send gradients.npy -c agent.yaml --to host3 --layer 7 --burst 1",
)
def send(
    *,
    file: Path | None = argument("[FILE.npy]", PATH, required=False),
    random_size: str | None = option(
        "Instead of a file: so much of a normal law.", None, "--random", metavar="SIZE"
    ),
    type_name: str | None = option(
        "Of elements, where no file says it.",
        click.Choice(tuple(entry.name.lower() for entry in ElementType)),
        "--type",
    ),
    hosts: tuple[str, ...] = option(
        "A peer.", None, "--to", multiple=True, required=True, metavar="HOST[=ADDRESS[:PORT]]"
    ),
    rounds: int = option("How often; by default once.", click.IntRange(1, MOST_ROUNDS), default=1),
    layer: str = option("Number, or name in the plan's profile: gives the class.", default="0"),
    importance: str | None = option("Which packets are important.", click.Choice(list(POLICIES)), "--policy"),
    burst_packets: int | None = option("Packets that share a path and a DSCP/ECN byte.", int, "--burst"),
    run: RunOptions,
) -> None:
    """Send a tensor to peers that wait with `agent recv`.

    How much may be lost on the way is the receiver's to say. Exit code 6: a peer did not get it.
    """
    data, kind = _tensor(file, random_size, type_name)
    settings = run.settings("sender", burst_packets=burst_packets)
    number = int(layer) if layer.isascii() and layer.isdigit() and len(layer) <= 5 else layer
    with naming_options("layer"):
        dscp = settings.dscp(number)
    # The port of the file is this host's receiver's.
    here = str(Endpoint(settings.listen_at.address, 0))
    about = {"element_type": kind.name.lower(), "dtype": data.dtype.str, "shape": data.shape}
    Sending(
        options=run.run(settings.model_copy(update={"listen": here})),
        show=_shown(run),
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


@command(
    "mltswitch agent recv -o gradients.npy",
    "mltswitch agent recv -c agent.yaml --from host1 --from host2 -o 'from-{peer}.npy'",
    "mltswitch agent recv -c agent.yaml --from host1 --loss-bound 0.1 --important-loss-bound 0.01",
)
def recv(
    *,
    output: str | None = option(
        "With {peer} and {round} in it, if you like.", None, "-o", "--output", metavar="FILE.npy"
    ),
    hosts: tuple[str, ...] = option(
        "Who sends; else who connects first.", None, "--from", multiple=True, metavar="HOST"
    ),
    listen: str | None = option("Where peers connect to.", metavar="ADDRESS[:PORT]"),
    loss_bound: float | None = option("Of packets that may be missing.", BELOW_ONE, metavar="SHARE"),
    important_loss_bound: float | None = option("Of important packets.", BELOW_ONE, metavar="SHARE"),
    maximum: int = option("Of memory for all tensors; by default 1GiB.", SIZE, default="1GiB"),
    run: RunOptions,
) -> None:
    """Receive the tensor that peers send with `agent send`.

    They say its size and type. A file appears when a tensor is complete within its bound, or not at all; of
    several rounds it holds the last that was complete, unless its name has {round}: also where a later one
    failed, or you end it by Ctrl-C. Exit code 6: a tensor did not arrive.
    """
    for name in hosts:
        if problem := host_name_problem(name):
            raise UserInputError(problem, where=f"peer {name[:60]}")
    names = tuple(dict.fromkeys(hosts))
    if output is not None:
        check_output(output, names)
    receiving = Receiving(
        options=run.run(run.settings("receiver", listen=listen)),
        show=_shown(run),
        pattern=output,
        most_bytes=maximum,
        names=names,
        takes_first=not names,
        bounds={
            "loss_bound": loss_bound,
            "important_loss_bound": important_loss_bound,
            "deadline_seconds": run.deadline_seconds,
        },
        tell_stranger=Strangers().tell,
        last_words=last_words,
    )
    receiving.run(admit=receiving.admit, observers=(receiving,))


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
    file: Path | None, random_size: str | None, type_name: str | None
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


def _shown(run: RunOptions) -> Any:
    """Print what came of an exchange; that nobody reads it hides no error."""

    def show(exchange: Exchange, error: BaseException | None) -> None:
        try:
            _print(exchange, error, as_json=run.as_json)
        except OSError:  # why a run ends early is more than that nobody takes what it has come to
            if exchange.is_over:
                raise
            discard_output()
        if isinstance(error, SystemExit) and error.code == SIGNAL_EXIT_CODE + signal.SIGTERM:
            last_words("mltswitch: told to end (SIGTERM)")

    return show


def _print(exchange: Exchange, error: BaseException | None, *, as_json: bool) -> None:
    seconds, cpu_seconds = exchange.seconds
    document = exchange.described()
    if as_json and document:
        peers = [
            {"peer": peer, **more, "rounds": [plain(entry) for entry in exchange.rounds.get(peer, [])]}
            for peer, more in document["peers"].items()
        ]
        text = str(error) if isinstance(error, MltswitchError) else error and reason_of(error)
        times = {"seconds": seconds, "cpu_seconds": cpu_seconds}
        name = exchange.options.settings.name
        print_json({"name": name, **document, **times, "error": text, "peers": peers})
    elif not as_json and exchange.rounds:
        screen = console()
        # rich itself ends the process where nobody reads, with an exit code of its own.
        with screen.capture() as shown:
            rows = [(printable(peer), *_row(rounds)) for peer, rounds in exchange.rounds.items()]
            screen.print(table("Rounds (measured)", COLUMNS, rows))
        click.echo(f"{shown.get()}{seconds:.2f} s in all, of a processor here {cpu_seconds:.2f} s.")
        for others in exchange.rounds.values():
            if others[-1].error not in {None, error}:
                last_words(f"failed: {others[-1].error}")


def _row(rounds: Sequence[Round]) -> tuple[str, ...]:
    """Sums over a peer's rounds, and medians of times."""
    known = [entry.statistics for entry in rounds if entry.statistics is not None]
    whole = [entry.statistics for entry in rounds if entry.statistics is not None and entry.error is None]
    is_failed = any(entry.error is not None for entry in rounds)
    packets, lost = sum(found.packets for found in known), sum(entry.missing_packets or 0 for entry in rounds)
    times = ("-", "-", "-", "-")
    if whole:
        seconds, goodput = [found.seconds for found in whole], median(found.goodput_bps for found in whole)
        size = f"{whole[0].size_bytes / 1e6:,.3g}"
        times = (size, f"{median(seconds) * 1e3:.2f}", f"{max(seconds) * 1e3:.2f}", f"{goodput / 1e9:.3f}")
    sums = []
    for name in SUMS:
        values = [value for found in known if (value := getattr(found, name)) is not None]
        sums.append(figure(sum(values) if values else None, ","))
    share = f"{lost:,} ({format_ratio(lost / packets)})" if lost and packets else "0"
    result = "failed" if is_failed else "within the bound" if lost else "complete"
    return (str(len(rounds)), *times, f"{packets:,}", *sums, share, result)
