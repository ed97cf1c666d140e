"""The host agent's data plane on every network and among strangers: the compiled code, from seeds.

    python -m benchmarks.agent_campaign [--scenarios N] [--datagrams N] [--forged N] [--seed S]
                                        [--quick] [--json]

Needs gcc; `--forged` root. The campaign (tests/hostagent/dataplane/campaign.c) plays N networks that lose,
double, delay, reorder and corrupt, in virtual time; the fuzzer (fuzz.c) feeds N datagrams of strangers,
under the sanitizers of addresses and of undefined behaviour (so does `make test` with the campaign, fewer
of each). Their first lines say what is promised; the seed of a broken promise is printed, and the exit
status is 1. 0 leaves one out.

`--forged`: a live receiver with keys takes tensors while an attacker who sees the cable sends N datagrams
with the sender's own addresses: what was sent before, again; with a bit flipped; with token, tensor and
round kept, and random bytes behind.

    scenarios, scenario_transfers_succeeded, scenarios_per_second
    fuzz_datagrams, fuzz_datagrams_per_second
    forged_datagrams            sent by the attacker
    forged_rejected             by the receiver: wrong tag, old, of no transfer, token or version; the others
                                repeat a packet of the tensor that is on its way
    forged_rounds               tensors that arrived meanwhile
    forged_foreign_bytes        of these that are not what the sender sent
"""

import os
import re
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
import numpy as np

from benchmarks.agent_ends import (
    CONTROL_PORT,
    Worker,
    agent_fields,
    agents,
    connect,
    new_keys,
    open_agent,
    post,
)
from benchmarks.agent_network import running_pair
from benchmarks.figures import print_figures
from mltswitch.errors import MachineError, MltswitchError
from mltswitch.lab.programs import compiled, need
from mltswitch.lab.star import INTERFACE

TESTS: Final = Path(__file__).parents[1] / "tests" / "hostagent" / "dataplane"
SOURCES: Final = Path(__file__).parents[1] / "mltswitch" / "hostagent" / "dataplane"
SANITIZED: Final = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
SCENARIOS: Final = 100_000
DATAGRAMS: Final = 1_000_000
FORGED: Final = 100_000
QUICK_SHARE: Final = 0.01
PARTS: Final = 4
"""Of a run, for each processor: none waits long for the last one."""
TENSOR_BYTES: Final = 200_000
LINE_RATE_BPS: Final = 10e9
LEAST_CAPTURED: Final = 200
ETHERNET_BYTES: Final = 14
ETH_P_ALL: Final = 3
HEADERS: Final = struct.Struct("!BBHHHBBH4s4sHHHH")
"""IPv4 without options, and UDP."""
KEPT_BYTES: Final = 20
"""Of a datagram whose rest becomes random: version, kind, token, tensor and round."""


def play(program: Path, first: int, count: int, pattern: str) -> tuple[list[int], float]:
    """Sums of the numbers that the pattern finds, and seconds; raises MachineError with what it says."""
    cores = len(os.sched_getaffinity(0))
    size = -(-count // (PARTS * cores))
    parts = [(first + at, min(size, count - at)) for at in range(0, count, size)]

    def part(arguments: tuple[int, int]) -> list[int]:
        ended = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
        said = re.search(pattern, ended.stdout)
        if ended.returncode or said is None:
            raise MachineError((ended.stdout + ended.stderr)[-2000:], where=program.name)
        return [int(number) for number in said.groups()]

    started = time.monotonic()
    with ThreadPoolExecutor(cores) as pool:
        sums = [sum(column) for column in zip(*pool.map(part, parts), strict=True)]
    return sums, time.monotonic() - started


def built(name: str, folder: Path, *options: str) -> Path:
    """A program of the data plane's tests; raises MachineError."""
    sources = map(str, sorted(SOURCES.glob("*.c")))
    options = (*options, "-D_GNU_SOURCE", f"-I{SOURCES}", *sources, "-lm", "-pthread")
    return compiled(TESTS / name, folder, *options)


def in_virtual_time(folder: Path, seed: int, scenarios: int, datagrams: int) -> dict[str, float]:
    """The campaign and the fuzzer."""
    found: dict[str, float] = {}
    if scenarios:
        counts, seconds = play(
            built("campaign.c", folder), seed, scenarios, r"(\d+) scenarios, (\d+) transfers succeeded"
        )
        found["scenarios"], found["scenario_transfers_succeeded"] = map(float, counts)
        found["scenarios_per_second"] = counts[0] / seconds
    if datagrams:
        counts, seconds = play(built("fuzz.c", folder, *SANITIZED), seed, datagrams, r"(\d+) datagrams")
        found["fuzz_datagrams"] = float(counts[0])
        found["fuzz_datagrams_per_second"] = counts[0] / seconds
    return found


# The attacker


def captured(wire: socket.socket) -> list[bytes]:
    """IP packets that the interface has seen, of UDP."""
    found: list[bytes] = []
    while True:
        try:
            packet = wire.recv(1 << 16)[ETHERNET_BYTES:]
        except BlockingIOError:
            return found
        if len(packet) > HEADERS.size and packet[0] == 0x45 and packet[9] == socket.IPPROTO_UDP:
            found.append(packet)


def forged(packet: bytes, number: int, random: np.random.Generator) -> bytes:
    """The same again; or one bit of the payload is another; or all but its first bytes."""
    changed = bytearray(packet)
    if number % 3 == 1:
        at = int(random.integers(HEADERS.size, len(packet)))
        changed[at] ^= 1 << int(random.integers(8))
    elif number % 3 == 2:
        start = min(len(packet), HEADERS.size + KEPT_BYTES)
        changed[start:] = random.bytes(len(packet) - start)
    changed[26:28] = bytes(2)  # no UDP checksum: the kernel would drop what does not match
    return bytes(changed)


def attack(seed: int, count: int, to_address: str) -> int:
    """From the sender's host: so many, of what its interface lately sent; returns how many."""
    random = np.random.default_rng(seed)
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.bind((INTERFACE, 0))
    wire.setblocking(False)
    seen: list[bytes] = []
    with wire, socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        target = socket.inet_aton(to_address)
        for number in range(count):
            if number % 100 == 0:
                while not (
                    seen := [*seen, *(each for each in captured(wire) if each[16:20] == target)][-2000:]
                ):
                    time.sleep(0.001)
            raw.sendto(forged(seen[int(random.integers(len(seen)))], number, random), (to_address, 0))
    return count


def rounds(count: int, is_sender: bool, seed: int) -> int:
    """At one end; bytes of what has arrived that the other did not send."""
    random, foreign = np.random.default_rng(seed), 0
    for _ in range(count):
        expected = random.integers(0, 256, TENSOR_BYTES, np.uint8)
        if is_sender:
            post("sender", "receiver", expected, sends=True, burst_packets=1).wait()
            continue
        buffer = np.zeros_like(expected)
        post("receiver", "sender", buffer, sends=False).wait()
        foreign += int((buffer != expected).sum())
    return foreign


def rejected(name: str) -> int:
    """Datagrams that an agent's data plane has refused."""
    found = agents[name].snapshot()
    counted = sum(found.data_plane.get(key, 0) for key in ("unknown_token", "unknown_version"))
    for channels in found.peers.values():
        for connection in map(asdict, channels.values()):
            counted += sum(connection[f"{kind}_datagrams"] for kind in ("forged", "stale", "refused"))
    return counted


def under_attack(folder: Path, seed: int, count: int) -> dict[str, float]:
    """Tensors until the attacker has sent all."""
    need("ip")
    with running_pair() as pair, ExitStack() as stack:
        sender, receiver, attacker = (
            stack.enter_context(Worker(host)) for host in (pair.sender, pair.receiver, pair.sender)
        )
        keys = new_keys(folder, "sender", "receiver")
        ends = {"sender": (sender, pair.sender_addresses), "receiver": (receiver, pair.receiver_addresses)}
        for name, (worker, addresses) in ends.items():
            fields = agent_fields(name, addresses[:1], LINE_RATE_BPS, keys=keys[name], authenticate=True)
            worker.call(open_agent, fields)
        address = pair.receiver_addresses[0]
        sender.call(connect, "sender", "receiver", f"{address}:{CONTROL_PORT}")
        before = receiver.call(rejected, "receiver")
        attacker.start(attack, seed, count, address)
        done = foreign = 0
        while done == 0 or not attacker.is_ready():
            for worker, is_sender in ((receiver, False), (sender, True)):
                worker.start(rounds, 20, is_sender, seed + done)
            sender.result()
            foreign += receiver.result()
            done += 20
        return {
            "forged_datagrams": float(attacker.result()),
            "forged_rejected": float(receiver.call(rejected, "receiver") - before),
            "forged_rounds": float(done),
            "forged_foreign_bytes": float(foreign),
        }


def measure(seed: int, scenarios: int, datagrams: int, forged_datagrams: int) -> dict[str, float]:
    """What is asked for; raises MachineError where a promise is broken."""
    with tempfile.TemporaryDirectory(prefix="mltswitch-campaign-") as folder:
        found = in_virtual_time(Path(folder), seed, scenarios, datagrams)
        return found | (under_attack(Path(folder), seed, forged_datagrams) if forged_datagrams else {})


@click.command()
@click.option("--scenarios", default=SCENARIOS, show_default=True, help="Of the campaign.")
@click.option("--datagrams", default=DATAGRAMS, show_default=True, help="Of the fuzzer.")
@click.option("--forged", "forged_datagrams", default=FORGED, show_default=True, help="Of the attacker.")
@click.option("--seed", default=1, show_default=True, help="Of the first scenario.")
@click.option("--quick", is_flag=True, help="A hundredth of each.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(
    scenarios: int, datagrams: int, forged_datagrams: int, seed: int, quick: bool, as_json: bool
) -> None:
    """Play the campaign, feed the fuzzer, attack a live receiver."""
    share = QUICK_SHARE if quick else 1.0
    counts: Sequence[int] = [int(count * share) for count in (scenarios, datagrams, forged_datagrams)]
    try:
        found = measure(seed, *counts)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)
    if found.get("forged_foreign_bytes"):
        raise click.ClickException("foreign bytes were written into a tensor")


if __name__ == "__main__":
    main()
