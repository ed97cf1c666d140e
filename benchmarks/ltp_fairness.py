"""What one flow of `ltp` leaves to one of TCP, and eight of them to each other (LTP, figure 15).

    python -m benchmarks.ltp_fairness [--quick] [--json]

Needs root and gcc. The star of benchmarks/ltp_network.py, a fresh one for each company of flows; round trip
10 ms, no random loss, 60 s (10 with --quick). Each flow has a host of its own and the receiver's port in
common; ltp sends tensors of 1 MB with loss bound 0, three on their way. Bytes are what the receiver has had
of each flow from the common start to the common end.

    share_beside_bbr        ltp's bytes over the kernel's BBR's
    share_beside_cubic      over cubic's
    jain_eight              Jain's index of eight flows of ltp: 1 where all have the same
    share_of_two_bbr        two flows of the kernel's BBR, the lesser over the greater: what BBR itself does
    FLOW_mbps_COMPANY       of each flow, where COMPANY is beside_bbr, beside_cubic, eight, two_bbr
"""

import time
from functools import partial
from typing import Any, Final

import click

from benchmarks.agent_ends import heard, stream_until, together
from benchmarks.agent_network import LEAD_NS, RECEIVER, StarEnds, sender_name
from benchmarks.agent_rivals import tcp_stream_until
from benchmarks.figures import print_figures
from benchmarks.ltp_network import running_ltp
from mltswitch.errors import MltswitchError

ROUND_TRIP_SECONDS: Final = 10e-3
SIZE_BYTES: Final = 1_000_000
SECONDS: Final = 60
QUICK_SECONDS: Final = 10
COMPANIES: Final = {
    "beside_bbr": ("ltp", "bbr"),
    "beside_cubic": ("ltp", "cubic"),
    "eight": ("ltp",) * 8,
    "two_bbr": ("bbr", "bbr"),
}


def flow(sends: bool, number: int, transport: str, until_ns: int) -> "partial[int]":
    """One end of the flow from a host."""
    if transport != "ltp":
        return partial(tcp_stream_until, sends, until_ns, transport, number)
    names = (sender_name(number), RECEIVER) if sends else (RECEIVER, sender_name(number))
    return partial(stream_until, sends, until_ns, *names, SIZE_BYTES, "ltp")


def shares(ends: StarEnds, transports: tuple[str, ...], seconds: int) -> list[int]:
    """Bytes of each flow."""
    until_ns = time.monotonic_ns() + LEAD_NS + seconds * 1_000_000_000
    for worker, sends in ((ends.receiver, False), (ends.senders, True)):
        calls: list[Any] = [flow(sends, number, name, until_ns) for number, name in enumerate(transports)]
        worker.start(together, *calls)
    time.sleep(seconds)
    found: list[int] = ends.receiver.result()
    ends.senders.result()
    return found


def measure(seconds: int) -> dict[str, float]:
    """All companies, one after the other; raises MachineError."""
    flows, mbps = {}, {}
    for company, transports in COMPANIES.items():
        with running_ltp(len(transports), ROUND_TRIP_SECONDS) as ends:
            flows[company] = found = shares(ends, transports, seconds)
            for number, name in enumerate(transports):
                key = f"{name}{number if len(set(transports)) == 1 else ''}_mbps_{company}"
                mbps[key] = found[number] * 8 / seconds / 1e6
                told = "" if name != "ltp" else ends.senders.call(heard, sender_name(number), RECEIVER, name)
                click.echo(f"{key}: {mbps[key]:.1f} {told}", err=True)
    eight = flows["eight"]
    return {
        "share_beside_bbr": flows["beside_bbr"][0] / flows["beside_bbr"][1],
        "share_beside_cubic": flows["beside_cubic"][0] / flows["beside_cubic"][1],
        "jain_eight": sum(eight) ** 2 / len(eight) / sum(each**2 for each in eight),
        "share_of_two_bbr": min(flows["two_bbr"]) / max(flows["two_bbr"]),
        **mbps,
    }


@click.command()
@click.option("--quick", is_flag=True, help="Ten seconds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Shares of one port."""
    try:
        found = measure(QUICK_SECONDS if quick else SECONDS)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
