"""Sender and receiver over real sockets on loopback: tags, counts and delays survive."""

import subprocess
import sys
from collections import Counter
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import MachineError
from mltswitch.measure import ProbeHost
from mltswitch.measure.packet import ProbePacket
from mltswitch.measure.run import Received, run
from mltswitch.measure.schedule import Flow
from mltswitch.measure.sender import BurstTask, RampTask
from mltswitch.plan import Plan
from mltswitch.wire import Ecn
from tests.measuring import measured

LOOPBACK_NS = 50e6
LOOPBACK = ProbeHost("localhost", (), (IPv4Address("127.0.0.1"), IPv4Address("127.0.0.2")))


@given(
    run=st.integers(0, 2**32 - 1),
    sender=st.integers(0, 255),
    class_index=st.integers(0, 255),
    important=st.booleans(),
    sequence=st.integers(0, 2**32 - 1),
    sent_ns=st.integers(0, 2**64 - 1),
    padding=st.binary(max_size=50),
)
def test_codec(
    run: int, sender: int, class_index: int, important: bool, sequence: int, sent_ns: int, padding: bytes
) -> None:
    packet = ProbePacket(run, sender, class_index, important, sequence, sent_ns)
    assert ProbePacket.unpack(packet.pack() + padding) == packet


@given(st.binary(max_size=100))
def test_foreign_datagrams_are_ignored(datagram: bytes) -> None:
    assert ProbePacket.unpack(datagram) is None or datagram.startswith(b"MLTp")


def median_delay_ns(received: Received) -> float:
    return float(np.median(received.records["delay_ns"]))


def test_every_packet_arrives_with_its_tag(lab_plan: Plan) -> None:
    flows = tuple(Flow(position, 400.0, 4, 0.5) for position in range(len(lab_plan.classes)))
    received = measured(
        lambda: run(lab_plan, LOOPBACK, {LOOPBACK: BurstTask(flows=flows, seed=5)}, 1.0, seed=3),
        lambda received: median_delay_ns(received) < LOOPBACK_NS,
    )
    assert len(received.records) == sum(received.sent.values()) > 500
    arrived = Counter(
        (int(record["class_index"]), bool(record["is_important"])) for record in received.records
    )
    assert arrived == received.sent
    for record in received.records:
        dscp = lab_plan.classes[record["class_index"]].dscp[0]
        ecn = Ecn.ECT_0 if record["is_important"] else Ecn.NOT_ECT
        assert record["tos"] == dscp << 2 | ecn
    assert (received.records["delay_ns"] > 0).all()
    assert median_delay_ns(received) < LOOPBACK_NS


def test_strangers_on_the_port_do_not_count(lab_plan: Plan, tmp_path: Path) -> None:
    """Another run's packets arrive while ours is measured."""
    noise = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import socket,time\n"
            "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            "for _ in range(400):\n"
            "    s.sendto(b'MLTp'+bytes(40),('127.0.0.1',47001)); s.sendto(b'x',('127.0.0.1',47001))\n"
            "    time.sleep(0.01)\n",
        ]
    )
    try:
        task = RampTask(class_index=2, packets_per_second=500)
        received = measured(lambda: run(lab_plan, LOOPBACK, {LOOPBACK: task}, 0.4, seed=9), lambda _: True)
    finally:
        noise.kill()
        noise.wait()
    assert len(received.records) == 200


def test_a_host_that_cannot_be_entered(lab_plan: Plan) -> None:
    nowhere = ProbeHost("ghost", ("/nonexistent/enter",), LOOPBACK.addresses)
    with pytest.raises(MachineError, match="ghost: cannot start a probe process"):
        run(lab_plan, nowhere, {LOOPBACK: RampTask(class_index=2, packets_per_second=10)}, 0.2, seed=1)


def test_a_process_that_fails_is_named(lab_plan: Plan) -> None:
    failing = ProbeHost(
        "broken", (sys.executable, "-c", "import sys; sys.exit('no route')"), LOOPBACK.addresses
    )
    with pytest.raises(MachineError, match="broken: a probe process failed: no route"):
        run(lab_plan, LOOPBACK, {failing: RampTask(class_index=2, packets_per_second=10)}, 0.2, seed=1)
