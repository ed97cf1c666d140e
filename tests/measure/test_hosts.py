"""The hosts' program: what it sends is what comes, and every way to fail is one clear line."""

import base64
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest

from mltswitch.errors import MachineError
from mltswitch.measure import TestHost, agent, open_hosts
from mltswitch.measure.hosts import HEADER_BYTES, DisturbedRunError, Exchanged, Hosts
from mltswitch.measure.observe import observe
from mltswitch.measure.runs import ALTERNATING, NOT_ECT, TestedPort, threshold_run
from mltswitch.measure.schedule import Flow, Run, packets_at, poisson_bursts
from mltswitch.plan import Plan
from mltswitch.wire import Ecn
from tests.measuring import measured

PATHS = (IPv4Address("127.0.0.1"), IPv4Address("127.0.0.2"))
LOOPBACK_SECONDS = 0.05
HERE = TestHost("here", ())
SHELL_BETWEEN = ("sh", "-c", 'exec sh -c "$*"', "ssh")
"""Joins its arguments and hands them to a shell, as ssh does."""
IDLE: Run = (packets_at(np.arange(20) * 0.002, 2, NOT_ECT, phase="idle"),)


def sender(name: str, prefix: tuple[str, ...] = (), *, quoted: bool = False) -> TestHost:
    return TestHost(name, prefix, PATHS, quoted)


def free_port() -> int:
    """A port that nobody else on this machine uses: tests run beside each other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind(("0.0.0.0", 0))  # noqa: S104  (as the receiver does; nothing is read from it)
        return int(channel.getsockname()[1])


@contextmanager
def opened(
    plan: Plan, senders: Sequence[TestHost], receiver: TestHost = HERE, port: int | None = None
) -> Iterator[Hosts]:
    with open_hosts(plan, receiver, senders, 100 + HEADER_BYTES, port=port or free_port()) as hosts:
        yield hosts


def exchanged(hosts: Hosts, run: Run) -> Exchanged:
    """A run for which the machine was fast enough."""
    return measured(
        lambda: hosts.exchange(run),
        lambda found: float(np.median(observe(found, 0.0).wait_seconds)) < LOOPBACK_SECONDS,
    )


def test_a_host_that_reads_nothing_is_given_up(lab_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task is longer than what waits in a pipe."""
    monkeypatch.setattr("mltswitch.measure.hosts.PATIENCE_SECONDS", 1.0)
    run: Run = (packets_at(np.arange(20_000) * 1e-4, 2, NOT_ECT, phase="idle"),)
    deaf = sender("deaf", ("sh", "-c", "exec sleep 600", "deaf"))
    begin = time.monotonic()
    with opened(lab_plan, [deaf]) as hosts, pytest.raises(MachineError, match="deaf"):
        hosts.exchange(run)
    assert time.monotonic() - begin < 300


def test_every_packet_arrives_with_its_tag_run_after_run(lab_plan: Plan) -> None:
    flows = [Flow(index, 400.0, 4, 0.5) for index in range(len(lab_plan.classes))]
    schedule = poisson_bursts(flows, 1.0, seed=5)
    with opened(lab_plan, [sender("there")]) as hosts:
        found = [exchanged(hosts, (schedule,)) for _ in range(2)]
    for each in found:
        assert sorted(each.records["sequence"].tolist()) == list(range(len(schedule)))
        tags = zip(schedule.class_index.tolist(), schedule.is_important.tolist(), strict=True)
        dscps = [entry.dscp[0] for entry in lab_plan.classes]
        sent = Counter(
            dscps[index] << 2 | (Ecn.ECT_0 if is_important else Ecn.NOT_ECT) for index, is_important in tags
        )
        assert Counter(each.records["tos"].tolist()) == sent
        trace = observe(each, 0.0)
        assert trace.is_received.all()
        assert not trace.is_marked.any()
        assert (trace.wait_seconds > 0).all()
        assert np.median(trace.wait_seconds) < LOOPBACK_SECONDS


def test_a_shell_on_the_way_changes_nothing(lab_plan: Plan) -> None:
    receiver = TestHost("here", SHELL_BETWEEN, quoted=True)
    with opened(lab_plan, [sender("there", SHELL_BETWEEN, quoted=True)], receiver) as hosts:
        assert len(exchanged(hosts, IDLE).records) == 20


def test_two_senders_are_told_apart(lab_plan: Plan) -> None:
    run = threshold_run(TestedPort(10_000_000, 1514, 2, (1,)), 3, 4 * 1514, 8 * 1514)
    with opened(lab_plan, [sender("a"), sender("b")]) as hosts:
        trace = observe(exchanged(hosts, run))
    assert set(np.unique(trace.phase).tolist()) == {"idle", "burst", "hold", "fill"}
    assert trace.is_received.all()
    assert np.all(np.diff(trace.time_seconds) >= 0)


def test_a_sender_may_be_silent(lab_plan: Plan) -> None:
    silent = packets_at(np.zeros(0), 0, NOT_ECT)
    with opened(lab_plan, [sender("a"), sender("b")]) as hosts:
        found = exchanged(hosts, (silent, *IDLE))
    assert set(found.records["sender"].tolist()) == {1}
    assert len(observe(found, 0.0)) == 20


def test_strangers_on_the_port_do_not_count(lab_plan: Plan) -> None:
    """Another run's packets arrive while ours is measured."""
    port = free_port()
    code = (
        "import socket,time\n"
        "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
        "for _ in range(1000):\n"
        f"    s.sendto(b'MLTa'+bytes(40),('127.0.0.1',{port})); s.sendto(b'x',('127.0.0.1',{port}))\n"
        "    time.sleep(0.01)\n"
    )
    noise = subprocess.Popen([sys.executable, "-c", code])
    try:
        with opened(lab_plan, [sender("there")], port=port) as hosts:
            assert len(exchanged(hosts, IDLE).records) == 20
    finally:
        noise.kill()
        noise.wait()


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        (("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255", "sh"), "Permission denied"),
        (("sh", "-c", "echo Welcome; cat >/dev/null", "sh"), "its program began with 'Welcome"),
        (("no-such-program-anywhere",), "cannot be reached: No such file"),
    ],
)
def test_a_host_that_fails_is_named(lab_plan: Plan, prefix: tuple[str, ...], words: str) -> None:
    with (
        pytest.raises(MachineError, match=words) as caught,
        opened(lab_plan, [sender("broken", prefix)]) as hosts,
    ):
        hosts.exchange(IDLE)
    assert caught.value.where == "broken"


def test_without_ssh_the_error_has_the_command_that_installs_it(
    lab_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3").symlink_to(shutil.which("python3") or sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(MachineError, match=r"`apt-get install openssh-client`$"),
        opened(lab_plan, [sender("far", ("ssh", "far"))]) as hosts,
    ):
        hosts.exchange(IDLE)


CLAIMS = """
import sys
sys.stdin.read(int(sys.stdin.readline()))
for line in ("ready", sys.argv[1]):
    sys.stdin.readline()
    print(line, flush=True)
"""
"""A program that does nothing and answers what it was started with."""
SENT = '{"refused": 0, "late_seconds": 0, "overrun_seconds": 0}'
RECEIVED = '{"records": "", "dropped": 0}'


@pytest.mark.parametrize(
    ("sent", "received", "where", "words"),
    [
        (SENT.replace('"refused": 0', '"refused": 9'), RECEIVED, "there", "refused 9 of 20 packets"),
        (SENT.replace('"late_seconds": 0', '"late_seconds": 0.5'), RECEIVED, "there", "up to 0.50 s late"),
        (
            SENT.replace('"overrun_seconds": 0', '"overrun_seconds": 2'),
            RECEIVED,
            "there",
            "up to 2.00 s late",
        ),
        (SENT, RECEIVED.replace('"dropped": 0', '"dropped": 3'), "here", r"dropped packets \(3\)"),
    ],
)
def test_a_host_that_disturbed_the_run_is_named(
    lab_plan: Plan, sent: str, received: str, where: str, words: str
) -> None:
    receiver = TestHost("here", (sys.executable, "-c", CLAIMS, received))
    with (
        pytest.raises(DisturbedRunError, match=words) as caught,
        opened(lab_plan, [sender("there", (sys.executable, "-c", CLAIMS, sent))], receiver) as hosts,
    ):
        hosts.exchange(IDLE)
    assert caught.value.where == where


@pytest.mark.parametrize("times", [struct.pack("<d", 200.0), bytes(8 * (agent.MAXIMUM_PACKETS + 1))])
def test_the_program_refuses_more_than_a_measurement_needs(times: bytes) -> None:
    with pytest.raises(ValueError, match="larger than any measurement"):
        agent.send({"due_seconds": base64.b64encode(times)})


def test_a_whole_turn_of_kinds_takes_one_path_and_paths_take_turns() -> None:
    schedule = packets_at(np.arange(8) * 0.1, 2, ALTERNATING, turn_packets=2)
    assert schedule.is_important.tolist() == [True, False] * 4
    assert (schedule.turn % len(PATHS)).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_the_program_travels_as_plain_text_and_needs_no_package() -> None:
    source = open(agent.__file__, encoding="ascii").read()  # noqa: PTH123, SIM115  (must be plain ASCII)
    imported = [line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
