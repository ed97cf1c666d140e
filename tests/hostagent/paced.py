"""Two agents on a cable, once with fq at the sender and once without: how evenly packets come, as JSON.

    python -m tests.hostagent.paced

As root, in a network namespace or a kernel of its own that has fq.
"""

import json
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.departures import SPEED_UP
from mltswitch.hostagent.network.features import egress
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE
from mltswitch.hostagent.transport.rate import RateSettings
from tests.hostagent.namespaces import INTERFACE, Host, TwoHosts, two_hosts

RATE_BPS: Final = 10e6
"""So slow that a busy machine keeps it; the credit that a sender begins with is 44 packets."""
ELEMENTS: Final = 250_000
DATA_PORT: Final = 18_515
PACKET_BYTES: Final = 1472 + 42
PATIENCE_SECONDS: Final = 60.0
EARLY_SECONDS: Final = 100e-6
"""Two clocks are read one after the other."""
_ETH_P_IP: Final = 0x0800
_TIME: Final = struct.Struct("=qq")


def agent(host: Host, name: str) -> Agent:
    """Sends at the rate whatever round trips say."""
    with host.entered():  # its thread stays there
        return Agent(
            AgentSettings(
                name=name,
                addresses=host.aliases,
                security=Plaintext(beyond_loopback=True),
                rate=RateSettings.for_network(RATE_BPS, queue_bytes=0, noise_ns=10**9),
                control_dscp=40,
                data_port=DATA_PORT,
                listen=Endpoint(host.address, 0),
            )
        )


def transfer(hosts: TwoHosts) -> dict[str, Any]:
    """One tensor, each packet by itself; when its packets came to the other end of the cable."""
    with ExitStack() as stack:
        with hosts.other.entered():
            seen = stack.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP))
            )
        seen.bind((INTERFACE, _ETH_P_IP))
        seen.setsockopt(socket.SOL_SOCKET, libc.SO_RCVBUFFORCE, 64 << 20)
        seen.setsockopt(socket.SOL_SOCKET, libc.SO_TIMESTAMPNS, 1)
        sender, receiver = (
            stack.enter_context(agent(host, name))
            for host, name in ((hosts.one, "one"), (hosts.other, "other"))
        )
        assert receiver.listening_at is not None
        sender.connect("other", receiver.listening_at, PATIENCE_SECONDS)
        receiver.wait_for_peers(["one"], PATIENCE_SECONDS)
        original = np.random.default_rng(1).standard_normal(ELEMENTS).astype(np.float32)
        buffer = np.zeros_like(original)
        there = receiver.post_recv("one", buffer, tensor=1, round_number=1)
        sender.post_send("other", original, tensor=1, round_number=1, dscp=34, policy="all", burst_packets=1)
        there.wait(PATIENCE_SECONDS)
        assert (buffer == original).all()
        with hosts.one.entered():
            is_spaced = egress(hosts.other.alias(0)).kernel_paces
        return {"kernel_paces": is_spaced} | spacing(arrivals(seen))


def arrivals(seen: socket.socket) -> list[tuple[float, float]]:
    """(when the sender handed it over, when it came) of each full data packet, in the order of sending.

    Seconds of the one clock that both ends have here; nothing is lost on the cable.
    """
    found: dict[int, tuple[float, float]] = {}
    real_to_monotonic = time.monotonic() - time.time()
    seen.setblocking(False)
    while True:
        try:
            packet, controls, _, sender = seen.recvmsg(128, 64)
        except BlockingIOError:
            return [found[sequence] for sequence in sorted(found)]
        is_data = int.from_bytes(packet[2:4], "big") == PACKET_BYTES - 14 and packet[9] == socket.IPPROTO_UDP
        if sender[2] == socket.PACKET_HOST and is_data:
            header = np.frombuffer(packet[28 : 28 + HEADER_DTYPE.itemsize], HEADER_DTYPE)[0]
            seconds, nanoseconds = _TIME.unpack(controls[0][2])
            came = seconds + nanoseconds / 1e9 + real_to_monotonic
            found.setdefault(int(header["sequence"]), (int(header["sent_nanoseconds"]) / 1e9, came))


def spacing(packets: list[tuple[float, float]]) -> dict[str, Any]:
    """Rate, and how many came before the time that they were given.

    On a busy machine packets come late, but never early: that they are spaced does not depend on its load.
    """
    even = PACKET_BYTES * 8 / RATE_BPS
    free, early = 0.0, 0
    for sent, came in packets:
        departure = max(free, sent)
        free = departure + even / SPEED_UP
        early += came < departure - EARLY_SECONDS
    times = sorted(came for _, came in packets)
    return {
        "packets": len(times),
        "early": early,
        "rate_share": PACKET_BYTES * 8 * (len(times) - 1) / (times[-1] - times[0]) / RATE_BPS,
    }


def main() -> None:
    """Print one line of JSON."""
    found = {}
    with two_hosts() as hosts:
        for kind in ("fq", "pfifo"):
            hosts.one.run("tc", "qdisc", "replace", "dev", INTERFACE, "root", kind)
            found[kind] = transfer(hosts)
    sys.stdout.write(json.dumps(found) + "\n")


def has_fair_queueing() -> bool:
    """Whether this kernel has fq."""
    command = "ip link add trial0 type dummy && tc qdisc replace dev trial0 root fq"
    done = subprocess.run(["unshare", "-n", "sh", "-c", command], check=False, capture_output=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
