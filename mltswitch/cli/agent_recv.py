"""`mltswitch agent recv`: a tensor from one or more peers."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from mltswitch.cli.agent_admission import Admission
from mltswitch.cli.agent_files import ROUND, Files, check_output
from mltswitch.cli.agent_options import (
    agent_options,
    checked_peer,
    configuration_of,
    document_of,
    orderly_end,
    running,
)
from mltswitch.cli.agent_results import (
    by_peer,
    described,
    line_of,
    print_early,
    print_received,
    rounds_as_data,
)
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.numbers import NumberRange
from mltswitch.cli.output import json_option, print_json, progress
from mltswitch.errors import MltswitchError, UserInputError, printable
from mltswitch.hostagent.announced import (
    ExchangeResult,
    Progress,
    ReceiveOptions,
    hear_announcements,
    receive_announced,
)
from mltswitch.hostagent.configuration.build import LOOPBACK_ADDRESS
from mltswitch.hostagent.configuration.document import MAXIMUM_PEERS
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.units import parse_bytes
from mltswitch.wire import AGENT_PORT

DEFAULT_NAME: Final = "receiver"
DEFAULT_MAXIMUM: Final = "1GiB"
BELOW_ONE: Final = NumberRange(0, 1, max_open=True)


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent recv -o gradients.npy\n"
    "  mltswitch agent recv -c agent.yaml --from host1 --from host2 -o 'from-{peer}.npy'\n"
    "  mltswitch agent recv -c agent.yaml --from host1 --loss-bound 0.1 --important-loss-bound 0.01"
)
@click.option(
    "-o",
    "--output",
    metavar="FILE.npy",
    help="Where it goes when it is complete; {peer} and {round} stand for names and numbers. Without, it is "
    "measured only.",
)
@click.option(
    "--from", "peers", multiple=True, metavar="HOST", help="Who sends; by default the first who connects."
)
@click.option("--listen", metavar="ADDRESS[:PORT]", help="Where peers connect to.")
@click.option(
    "--data-port", type=click.IntRange(0, 65_535), help="UDP port of the data; 0: any, which peers are told."
)
@click.option(
    "--loss-bound",
    type=BELOW_ONE,
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Of the packets that may be missing at the end.",
)
@click.option(
    "--important-loss-bound",
    type=BELOW_ONE,
    metavar="SHARE",
    help="Of the important packets; by default the loss bound alone counts.",
)
@click.option(
    "--keep-missing",
    is_flag=True,
    help="Missing elements keep the value of the round before (parameters); else they are 0 (gradients).",
)
@click.option(
    "--maximum",
    default=DEFAULT_MAXIMUM,
    show_default=True,
    metavar="SIZE",
    help="Of all tensors together: no peer makes this host allocate more. Where a file is to hold the last "
    "of several rounds, a tensor counts twice.",
)
@agent_options
@json_option
def recv(
    output: str | None,
    peers: tuple[str, ...],
    listen: str | None,
    data_port: int | None,
    loss_bound: float,
    important_loss_bound: float | None,
    keep_missing: bool,
    maximum: str,
    config: Path | None,
    wait_seconds: float,
    deadline_seconds: float,
    metrics: str | None,
    open_metrics: bool,
    trace: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Receive the tensor that peers send with `mltswitch agent send`; they say its size and type.

    A file appears when a tensor is complete within its bound, or not at all; of several rounds it holds the
    last that was complete, unless its name has {round}: also where a later one failed, or you end it by
    Ctrl-C. Exit code 6: a tensor did not arrive.
    """
    _check_peers(peers)
    check_output(output, peers)
    maximum_bytes = _maximum_bytes(maximum)
    document = document_of(config, listen=listen, data_port=data_port, **options)
    if document.listen is None and document.plan is None:
        address = document.addresses[0] if document.addresses else LOOPBACK_ADDRESS
        document = document.model_copy(update={"listen": f"[{address}]:{AGENT_PORT}"})
    if document.transport is Transport.MLT and len(peers) > document.expected_peers:
        document = document.model_copy(update={"expected_peers": len(peers)})
    configuration = configuration_of(document, config, DEFAULT_NAME)
    receiving = ReceiveOptions(
        maximum_bytes=maximum_bytes,
        loss_bound=loss_bound,
        important_loss_bound=important_loss_bound,
        keep_missing=keep_missing,
        deadline_seconds=deadline_seconds,
        keep_last=output is not None and ROUND not in output,
    )
    files = Files(output)
    admission = Admission(peers, wait_seconds)
    ended = Progress()
    result: ExchangeResult | None = None

    def document_with(result: ExchangeResult, error: BaseException | None) -> dict[str, object]:
        rounds = by_peer(result)
        return {
            "name": configuration.settings.name,
            "direction": "receive",
            "seconds": result.seconds,
            "cpu_seconds": result.cpu_seconds,
            "error": line_of(error),
            "peers": [
                {
                    "peer": peer,
                    **described(ended.announced.get(peer)),
                    "files": files.written.get(peer, []),
                    "rounds": rounds_as_data(rounds.get(peer, [])),
                }
                for peer in admission.names
            ],
        }

    with orderly_end():
        try:
            with files.written_at_the_end():
                # From the beginning: who connects before it observes would be nobody's first.
                settings = replace(configuration.settings, admit=admission.admit, observers=(admission,))
                with running(settings, metrics, trace, open_metrics=open_metrics) as agent:
                    progress(f"{configuration.settings.name} listens at {agent.listening_at}")
                    progress(admission.waits_for())
                    newcomers = admission.wait(progress)
                    ended.begin()
                    while newcomers:
                        failed = hear_announcements(agent, newcomers, deadline_seconds, ended)
                        newcomers = admission.wait_again(agent, failed, progress) if failed else ()
                    with progress_bar() as advance:
                        _, result = receive_announced(
                            agent, admission.names, receiving, files.keep, advance, ended
                        )
                files.write_last()
        except (MltswitchError, KeyboardInterrupt, SystemExit) as error:
            until_now = result or ended.until_now()
            files.tell_lost(until_now, error)
            if as_json and admission.names:
                print_early(print_json, document_with(until_now, error))
            elif not as_json and until_now.rounds:
                print_early(print_received, until_now)
            raise
    if as_json:
        print_json(document_with(result, result.error))
    else:
        print_received(result)
        for peer, names_of_peer in files.written.items():
            for name in names_of_peer:
                click.echo(f"Written: {printable(name)}{files.round_in(name, ended.announced[peer].rounds)}")
    if result.error is not None:
        raise result.error


def _maximum_bytes(text: str) -> int:
    try:
        size_bytes = parse_bytes(text)
    except ValueError as error:
        raise UserInputError(str(error), where="--maximum") from None
    if size_bytes < 1:
        raise UserInputError(f"{size_bytes} bytes", where="--maximum", expected="1 byte or more")
    return size_bytes


def _check_peers(peers: tuple[str, ...]) -> None:
    if len(peers) > MAXIMUM_PEERS or len(set(peers)) < len(peers):
        raise UserInputError("each peer is named once", where="--from", expected=f"{MAXIMUM_PEERS} or fewer")
    for name in peers:
        checked_peer(name)
