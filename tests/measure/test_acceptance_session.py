"""The hosts' program: what it sends is what comes, and every way to fail is one clear line."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

import numpy as np
import pytest

from mltswitch.errors import MachineError
from mltswitch.measure.acceptance import agent
from mltswitch.measure.acceptance.observe import observe
from mltswitch.measure.acceptance.schedule import Flow, Marking, Port, Run, threshold_run
from mltswitch.measure.acceptance.session import Exchanged, Hosts, TestHost, open_hosts
from mltswitch.wire import Ecn
from tests.measuring import measured

HERE = IPv4Address("127.0.0.1")
SHELL_BETWEEN = ("sh", "-c", 'exec sh -c "$*"', "ssh")
"""Joins its arguments and hands them to a shell, as ssh does."""


def sender(name: str) -> TestHost:
    return TestHost(name, (), (HERE,))


@contextmanager
def open_here(receiver: TestHost, senders: list[TestHost], payload_bytes: int) -> Iterator[Hosts]:
    """At a port that nobody else on this machine uses: tests run beside each other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("0.0.0.0", 0))  # noqa: S104  (as the receiver does; nothing is read from it)
        port = probe.getsockname()[1]
    with open_hosts(receiver, senders, payload_bytes, port) as hosts:
        yield hosts


def flows(*entries: Flow) -> Run:
    return (entries,)


def exchanged(hosts: Hosts, run: Run) -> Exchanged:
    """A run for which the machine was fast enough."""
    return measured(lambda: hosts.exchange(run), lambda _: True)


def test_what_is_sent_arrives_with_its_tags() -> None:
    run = flows(
        Flow("idle", 2, 34, (Ecn.ECT_0, Ecn.NOT_ECT), 0.0, 0.002, 20),
        Flow("fill", 4, 26, (Ecn.ECT_0,), 0.05, 0.001, 30),
    )
    with open_here(TestHost("here", ()), [sender("there")], 200) as hosts:
        first, second = exchanged(hosts, run), exchanged(hosts, run)
    for found in (first, second):
        assert len(found.records) == 50
        assert sorted(found.records["sequence"].tolist()) == list(range(50))
        tos = {34 << 2: 10, 34 << 2 | Ecn.ECT_0: 10, 26 << 2 | Ecn.ECT_0: 30}
        values, counts = np.unique(found.records["tos"], return_counts=True)
        assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == tos
    trace = observe(first)
    assert trace.is_received.all()
    assert not trace.is_marked.any()
    assert int(trace.is_ect.sum()) == 40


def test_a_shell_on_the_way_changes_nothing() -> None:
    run = flows(Flow("idle", 2, 34, (Ecn.NOT_ECT,), 0.0, 0.002, 20))
    receiver = TestHost("here", SHELL_BETWEEN, quoted=True)
    there = TestHost("there", SHELL_BETWEEN, (HERE,), quoted=True)
    with open_here(receiver, [there], 100) as hosts:
        assert len(exchanged(hosts, run).records) == 20


def test_two_senders_are_told_apart() -> None:
    port = Port(10_000_000, 1514, 2, (1,))
    run = threshold_run(port, Marking(3, 36), 4 * 1514, 8 * 1514)
    with open_here(TestHost("here", ()), [sender("a"), sender("b")], 100) as hosts:
        trace = observe(exchanged(hosts, run))
    assert set(np.unique(trace.phase).tolist()) == {"idle", "burst", "hold", "fill"}
    assert trace.is_received.all()
    assert np.all(np.diff(trace.time_seconds) >= 0)


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        (("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255", "sh"), "Permission denied"),
        (("sh", "-c", "echo Welcome; cat >/dev/null", "sh"), "its program began with 'Welcome"),
        (("no-such-program-anywhere",), "cannot be reached: No such file"),
    ],
)
def test_a_host_that_fails_is_named(prefix: tuple[str, ...], words: str) -> None:
    run = flows(Flow("idle", 2, 34, (Ecn.NOT_ECT,), 0.0, 0.002, 20))
    with (
        pytest.raises(MachineError, match=words) as caught,
        open_here(TestHost("here", ()), [TestHost("broken", prefix, (HERE,))], 100) as hosts,
    ):
        hosts.exchange(run)
    assert caught.value.where == "broken"


def test_the_program_refuses_more_than_a_test_needs() -> None:
    task = {"destinations": ["127.0.0.1"], "port": 9, "payload_bytes": 100, "run": 1, "sender": 0}
    long = {"start": 0.0, "gap": 1.0, "count": 100, "dscp": 0, "ecn": [0]}
    many = {"start": 0.0, "gap": 0.0, "count": agent.MAXIMUM_PACKETS + 1, "dscp": 0, "ecn": [0]}
    for flow in (long, many):
        with pytest.raises(ValueError, match="larger than any acceptance test"):
            agent.send({**task, "flows": [flow]})


def test_the_program_travels_as_plain_text_and_needs_no_package() -> None:
    source = open(agent.__file__, encoding="ascii").read()  # noqa: PTH123, SIM115  (must be plain ASCII)
    imported = [line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    assert json.loads(json.dumps(Flow("idle", 1, 2, (0,), 0.0, 0.1, 3).request()))["count"] == 3
