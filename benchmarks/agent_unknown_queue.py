"""Three senders to one receiver whose port's queue nobody has told them: what is sent over what is needed.

    python -m benchmarks.agent_unknown_queue [--quick] [--json]

Needs root and gcc. Four hosts on mltswitch/lab/star.c, 200 Mbit/s a port, one drop-tail queue of 128
kB, round trip 0.2 ms; agents that know their line rate alone, as in the manual's example of a file. Each
sender posts 4 MB at the same instant without a loss bound, again and again; connections stay.

    sent_over_needed            packets sent over those of the tensors, all incasts
    sent_over_needed_first      of the first incast, when nothing is known of the network yet
    lost_share                  of the packets at the port, all incasts
    completion_over_limit       median time of a whole incast over its bytes at the port's rate
    incasts
"""

import time
from contextlib import ExitStack
from statistics import median
from typing import Final

import click
import numpy as np

from benchmarks.agent_ends import CONTROL_PORT, agent_fields, agents, connect, open_agent, post, random_tensor
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import one_queue, running_star

SENDERS: Final = 3
RATE_BPS: Final = 200_000_000
QUEUE_BYTES: Final = 128_000
ROUND_TRIP_SECONDS: Final = 0.2e-3
TENSOR_BYTES: Final = 4_000_000
INCASTS: Final = 20
QUICK_INCASTS: Final = 4
PAUSE_SECONDS: Final = 0.02


def measure(incasts: int, size_bytes: int = TENSOR_BYTES) -> dict[str, float]:
    """Raises MachineError, AgentError."""
    names = [f"sender{number}" for number in range(SENDERS)]
    with running_star(SENDERS + 1) as star, ExitStack() as stack:
        star.set_rate(RATE_BPS)
        star.set_queues(one_queue(QUEUE_BYTES))
        star.set_round_trip(ROUND_TRIP_SECONDS, star.round_trip_seconds())
        for number, name in enumerate([*names, "receiver"]):
            open_agent(agent_fields(name, star.addresses(number), RATE_BPS), star.hosts[number])
            stack.callback(agents[name].close)
        for name in names:
            connect(name, "receiver", f"{star.addresses(SENDERS)[0]}:{CONTROL_PORT}")
        tensor, buffers = random_tensor(size_bytes, 0), np.empty((SENDERS, size_bytes // 4), np.float32)
        star.report()
        shares, seconds = [], []
        for _ in range(incasts):
            started = time.monotonic()
            receives = [
                post("receiver", name, buffer, sends=False)
                for name, buffer in zip(names, buffers, strict=True)
            ]
            sends = [post(name, "receiver", tensor, sends=True) for name in names]
            for transfer in receives:
                transfer.wait()
            seconds.append(time.monotonic() - started)
            ended = [transfer.wait().statistics for transfer in sends]
            shares.append(sum(entry.packets_sent for entry in ended) / sum(entry.packets for entry in ended))
            time.sleep(PAUSE_SECONDS)
        queue = star.report()["queues"][0]
    offered = queue["important"] + queue["unimportant"]
    limit = SENDERS * size_bytes * 8 / RATE_BPS
    return {
        "sent_over_needed": sum(shares) / incasts,
        "sent_over_needed_first": shares[0],
        "lost_share": (queue["important_dropped"] + queue["unimportant_dropped"]) / offered,
        "completion_over_limit": median(seconds) / limit,
        "incasts": float(incasts),
    }


@click.command()
@click.option("--quick", is_flag=True, help="Fewer incasts.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """An incast into a queue that nobody has configured."""
    try:
        found = measure(QUICK_INCASTS if quick else INCASTS)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
