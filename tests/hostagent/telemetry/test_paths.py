"""A path that dies and comes back is told, on a real cable."""

from pathlib import Path

import numpy as np
import pytest

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.standing import Reason, State
from mltswitch.hostagent.telemetry.events import PathChanged, TransferEnded
from mltswitch.hostagent.telemetry.reading import read_trace
from mltswitch.hostagent.telemetry.trace import TraceWriter
from tests.hostagent.namespaces import INTERFACE, Host, can_make_namespaces, two_hosts
from tests.hostagent.telemetry.agents import CONTROL_DSCP, DSCP, PATIENCE_SECONDS, RATE, Remembering

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs root for network namespaces"),
]
DEAD = 2
MOST_ROUNDS = 2000


def made(host: Host, name: str, observer: Remembering | TraceWriter) -> Agent:
    settings = AgentSettings(
        name=name,
        addresses=host.aliases,
        security=Plaintext(beyond_loopback=True),
        control_dscp=CONTROL_DSCP,
        data_port=0,
        rate=RATE,
        listen=Endpoint(host.address, 0),
        observers=(observer,),
    )
    with host.entered():
        return Agent(settings)


def test_a_dead_path(tmp_path: Path) -> None:
    seen, rounds = Remembering(), 0
    with (
        two_hosts() as hosts,
        TraceWriter(tmp_path / "trace") as trace,
        made(hosts.one, "host-a", seen) as sender,
        made(hosts.other, "host-b", trace) as receiver,
    ):
        assert receiver.listening_at is not None
        with hosts.one.entered():
            sender.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
        receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)

        def until(state: State) -> PathChanged:
            nonlocal rounds
            while not (found := [entry for entry in seen.of(PathChanged) if entry.state is state]):
                assert rounds < MOST_ROUNDS, f"never {state}"
                rounds += 1
                original = np.ones(50_000, np.float32)
                buffer = np.zeros_like(original)
                there = receiver.post_recv("host-a", buffer, tensor=1, round_number=rounds)
                sender.post_send("host-b", original, tensor=1, round_number=rounds, dscp=DSCP)
                there.wait(PATIENCE_SECONDS)
                assert (buffer == 1).all()
            return found[0]

        address = ("address", "del", f"{hosts.other.alias(DEAD)}/24", "dev", INTERFACE)
        hosts.other.run("ip", *address)
        left = until(State.LEFT)
        assert (left.peer, left.path, left.reason) == ("host-b", DEAD, Reason.DEAD)
        hosts.other.run("ip", address[0], "add", *address[2:])
        back = until(State.PROBATION)
        assert (back.path, back.reason) == (DEAD, Reason.ANSWERS)
        assert left.time_ns < back.time_ns
        counted = sender.snapshot(PATIENCE_SECONDS).peers[0].counters
    assert counted.paths[DEAD].times_left >= 1
    assert counted.sent.packets_lost > 0
    ended = [entry for entry in seen.of(TransferEnded) if entry.statistics]
    assert any(entry.statistics.packets_lost for entry in ended if entry.statistics)
    told = [entry for entry in read_trace(tmp_path / "trace").events if isinstance(entry, TransferEnded)]
    assert len(told) == rounds
    assert {entry.result for entry in told} == {"completed"}
