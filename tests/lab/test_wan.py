"""The WAN lab does to packets what its document says, and leaves nothing behind."""

import io
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab.namespaces import NAMESPACE_DIRECTORY, process_ids
from mltswitch.lab.processes import read_record
from mltswitch.lab.wan import WanNetwork, running_wan
from mltswitch.lab.wan_lab import WanLab
from mltswitch.overlay.wan import Wan
from tests.targets.linux.uml import user_mode_linux

pytest.importorskip("networkx")
PORT = 20_900
SO_TIMESTAMPNS = 35
"""When the kernel has had a packet, however late a process reads it."""
PREFIX = f"mltswitch-wantest-{os.getpid()}"


def wan_of(**changes: Any) -> Wan:
    """a and b at 2 Mbit/s one way and 500 kbit/s back, b and c at 1 Mbit/s; a and c by way of b."""
    rates = {("a", "b"): 2000, ("b", "a"): 500, ("b", "c"): 1000, ("c", "b"): 1000}
    links = [
        {"source": one, "target": other, "rate": f"{rate}kbps", "delay_seconds": 0.01, "queue": "20kB"}
        for (one, other), rate in rates.items()
    ]
    return Wan.model_validate({"nodes": ["a", "b", "c"], "links": links} | changes)


NEEDED = ("ip", "tc", "ping", "gcc")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, NEEDED)) or not Path("/dev/net/tun").exists(),
    reason=f"needs root, tun, {', '.join(NEEDED)}",
)


@pytest.fixture(scope="module")
def network() -> Iterator[WanNetwork]:
    with running_wan(wan_of()) as found:
        yield found


def flood(network: WanNetwork, source: int, target: int, count: int) -> tuple[int, float]:
    """Packets of 1,000 bytes on the line, all at once: how many arrive, and at which rate [bit/s]."""
    with network.hosts[target].entered(), network.hosts[source].entered():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with network.hosts[target].entered():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver:
        receiver.bind((network.addresses(target)[0], PORT))
        receiver.settimeout(1.0)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for _ in range(count):
            sender.sendto(bytes(1000 - 42), (network.addresses(target)[0], PORT))
        times = list[float]()
        while True:
            try:
                (_, _, stamp), *_ = receiver.recvmsg(2000, 64)[1]
            except TimeoutError:
                break
            seconds, nanoseconds = struct.unpack("qq", stamp)
            times.append(seconds + nanoseconds / 1e9)
    return len(times), 8000 * (len(times) - 1) / (times[-1] - times[0])


@pytest.mark.parametrize(
    ("source", "target", "rate_bps"), [(0, 1, 2e6), (1, 0, 5e5), (0, 2, 1e6), (2, 0, 5e5)], ids=str
)
def test_rates_of_links_and_ways(network: WanNetwork, source: int, target: int, rate_bps: float) -> None:
    arrived, measured_bps = flood(network, source, target, 18)
    assert arrived == 18
    assert measured_bps == pytest.approx(rate_bps, rel=0.15)


FLIGHTS = """
import ctypes, json, os, socket, statistics, struct, sys, time
source, target, address = sys.argv[1:]
if not os.fork():
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind((address, 20900))
    receiver.setsockopt(socket.SOL_SOCKET, 35, 1)
    receiver.settimeout(3)
    told = []
    while len(told) < 300:
        data, [(_, _, stamp)], *_ = receiver.recvmsg(2000, 64)
        seconds, nanoseconds = struct.unpack("qq", stamp)
        told.append((seconds + nanoseconds / 1e9, struct.unpack_from("d", data)[0]))
    delay = min(came - left for came, left in told[:60])
    times = [came for came, _ in told[60:]]
    seconds, _ = statistics.linear_regression(range(len(times)), times)
    print(json.dumps([delay, 8000 / seconds]), flush=True)
    os._exit(0)
time.sleep(0.5)
link = os.open("/run/netns/" + source, os.O_RDONLY)
assert not ctypes.CDLL(None).setns(link, 0)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(300):
    sender.sendto(struct.pack("d", time.time()) + bytes(1000 - 42 - 8), (address, 20900))
    time.sleep(0.02 if number < 60 else 0)
os.wait()
"""
"""Packets of 1,000 bytes between two namespaces, 60 alone and 240 at once: least delay, and rate [bit/s]."""


@pytest.mark.skipif(shutil.which("linux.uml") is None, reason="needs user-mode-linux")
def test_a_link_is_as_the_kernels_netem_has_it(tmp_path: Path) -> None:
    program = tmp_path / "flights.py"
    program.write_text(FLIGHTS)
    wan = wan_of(
        nodes=["a", "b"],
        links=[
            {"source": one, "target": other, "rate": "2Mbps", "delay_seconds": 0.01, "queue": "400kB"}
            for one, other in (("a", "b"), ("b", "a"))
        ],
    )
    with running_wan(wan) as network:
        names = [host.name for host in network.hosts]
        arguments = [sys.executable, str(program), *names, network.addresses(1)[0]]
        command = network.hosts[1].command(arguments)
        ours = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    with user_mode_linux(tmp_path) as kernel:
        made = kernel.run(
            "ip netns add a && ip netns add b && ip link add va netns a type veth peer name vb netns b"
            " && ip -n a addr add 10.0.0.1/24 dev va && ip -n b addr add 10.0.0.2/24 dev vb"
            " && ip -n a link set va up && ip -n b link set vb up"
            " && tc -n a qdisc add dev va root netem rate 2mbit delay 10ms limit 400"
        )
        assert made.status == 0, made.error
        found = kernel.run(f"ip netns exec b {sys.executable} {program} a b 10.0.0.2")
        netems = json.loads(found.output)
    assert ours[0] == pytest.approx(netems[0], abs=0.5e-3)
    assert ours[1] == pytest.approx(netems[1], rel=0.02)


def test_delays_add_up(network: WanNetwork) -> None:
    assert network.round_trip_seconds() == pytest.approx(0.04, rel=0.15)  # from a to c and back


def test_a_queue_drops_what_does_not_fit_and_says_so(network: WanNetwork) -> None:
    network.carried()
    arrived, _ = flood(network, 0, 1, 60)
    found = network.carried()["a", "b"]
    assert arrived < 60
    assert found.dropped == 60 - arrived
    assert found.size_bytes == pytest.approx(1000 * arrived, abs=1000)


def test_a_link_changes_and_loses(network: WanNetwork) -> None:
    network.change("b", "a", rate_bps=1_500_000)
    assert flood(network, 1, 0, 18)[1] == pytest.approx(1.5e6, rel=0.15)
    network.change("b", "a", loss=0.999)
    assert flood(network, 0, 1, 5)[0] == 5, "the other direction stays"
    with pytest.raises((IndexError, ZeroDivisionError)):
        flood(network, 1, 0, 3)  # nothing comes
    network.change("b", "a", loss=0.0, rate_bps=500_000)
    with pytest.raises(UserInputError, match="link a to c: there is none"):
        network.change("a", "c", rate_bps=1_000_000)
    with pytest.raises(UserInputError, match="link a to b"):
        network.change("a", "b", rate_bps=0)


def test_drawn_rates_are_drawn_anew_and_nothing_else() -> None:
    links: list[dict[str, Any]] = [{"source": one, "target": other} for one, other in ("ab", "ba")]
    links[0]["rate"] = "3Mbps"
    changes = {"least": "1Mbps", "most": "9Mbps", "every_seconds": 0.2}
    wan = Wan.model_validate({"nodes": ["a", "b"], "links": links, "changes": changes})
    with running_wan(wan, is_changing=True) as network:
        network.change("a", "b", rate_bps=2_000_000, loss=0.5)
        network.change("b", "a", delay_seconds=0.25)
        time.sleep(0.7)
    found, draws = network.overlay, network.draws
    assert draws >= 2
    there, back = found.links
    assert (there.rate_bps, there.loss) == (2_000_000, 0.5)
    assert (back.rate_bps, back.delay_seconds) == (wan.overlay(draws).links[1].rate_bps, 0.25)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[WanLab]:
    found = WanLab(tmp_path / "lab", PREFIX)
    found.up(wan_of(), is_changing=False)
    yield found
    found.down()


def sleeping(site: str) -> "subprocess.Popen[bytes]":
    found = subprocess.Popen(["ip", "netns", "exec", f"{PREFIX}-{site}", "sleep", "60"])
    wait_until(lambda: found.pid in process_ids(f"{PREFIX}-{site}"))
    return found


def wait_until(is_true: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.02)


def processes() -> int:
    return sum(map(len, map(process_ids, left_over())))


def left_over() -> list[str]:
    return [place.name for place in NAMESPACE_DIRECTORY.glob(f"{PREFIX}-*")]


def test_it_stays_answers_and_goes(lab: WanLab, tmp_path: Path) -> None:
    found = lab.ask("status")
    assert [site["name"] for site in found["sites"]] == ["a", "b", "c"]
    assert {(link["source"], link["target"]): link["rate_bps"] for link in found["links"]}[
        "b", "a"
    ] == 500_000
    lab.ask("change", source="a", target="b", rate_bps=3_000_000)
    assert lab.ask("status")["links"][0]["rate_bps"] == 3_000_000
    with pytest.raises(UserInputError, match="there is none"):
        lab.ask("change", source="a", target="nowhere", rate_bps=3_000_000)
    with pytest.raises(UserInputError):
        lab.ask("change", source="a", target="b", rate_bps=-1)
    with pytest.raises(MachineError, match="is up"):
        lab.up(wan_of(), is_changing=False)
    assert len(left_over()) == 4
    lab.down()
    assert not left_over()
    assert not (tmp_path / "lab").exists()
    with pytest.raises(MachineError, match="is not up"):
        lab.ask("status")
    lab.down()  # again


def test_commands_are_ranks_of_one_job(lab: WanLab) -> None:
    code = "import json, os; print(*(os.environ[each] for each in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR')))"
    out = io.StringIO()
    assert lab.run([sys.executable, "-c", code], out) == 0
    assert sorted(out.getvalue().splitlines()) == [
        f"{name}: {at} 3 10.1.0.1" for at, name in enumerate("abc")
    ]
    code = "import json, os; print(len(json.load(open(os.environ['MLTSWITCH_OVERLAY']))['nodes']))"
    out = io.StringIO()
    assert lab.run([sys.executable, "-c", f"{code}; raise SystemExit(int(os.environ['RANK']) * 3)"], out) == 3
    assert sorted(out.getvalue().split()) == sorted(["a:", "b:", "c:", "3", "3", "3"])


def test_what_a_job_has_measured_stands_beside_what_is(lab: WanLab) -> None:
    assert {link["measured_bps"] for link in lab.status()["links"]} == {None}
    code = "import os; from mltswitch.hostagent import Agent, AgentConfig; "
    code += "from tests.hostagent.telemetry.examples import learned; "
    code += "config = AgentConfig.load(os.environ['MLTSWITCH_AGENT_CONFIG'])\n"
    code += "with Agent(config) as agent: agent.engine.tell(learned(1_900_000))"
    assert lab.run([sys.executable, "-c", code], io.StringIO()) == 0
    found = lab.status()
    rates = {(link["source"], link["target"]): link["measured_bps"] for link in found["links"]}
    assert {*rates.values()} == {None, 1_900_000}
    assert rates["a", "b"] == 1_900_000


def test_what_a_crash_leaves_is_removed(lab: WanLab, tmp_path: Path) -> None:
    identity = read_record(tmp_path / "lab" / "process")
    assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)
    while identity.alive:
        time.sleep(0.01)
    assert left_over()
    sleeper = sleeping("a")
    lab.up(wan_of(), is_changing=False)
    assert sleeper.wait(10) == -signal.SIGKILL
    assert len(lab.ask("status")["links"]) == 4
    json.dumps(lab.ask("status"), allow_nan=False)


def test_down_ends_what_runs_on_the_sites(lab: WanLab) -> None:
    sleeper = sleeping("b")
    lab.down()
    assert sleeper.wait(10) == -signal.SIGKILL


def test_all_lines_come_and_exit_codes_are_a_shells(lab: WanLab) -> None:
    out = io.StringIO()
    assert lab.run(["seq", "1", "5000"], out) == 0
    assert len(out.getvalue().splitlines()) == 3 * 5000
    out = io.StringIO()
    assert lab.run(["sh", "-c", "printf x; kill -9 $$"], out) == 137
    assert sorted(out.getvalue().splitlines()) == ["a: x", "b: x", "c: x"]


def test_ranks_end_with_whoever_runs_them(lab: WanLab, tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        lab.run(["sh", "-c", "yes; sleep 60"], Closed())
    code = "import sys; from pathlib import Path; from mltswitch.lab.wan_lab import WanLab; "
    code += f"WanLab(Path({str(tmp_path / 'lab')!r}), {PREFIX!r}).run(['sleep', '61'], sys.stdout)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        runner = subprocess.Popen([sys.executable, "-c", code])
        wait_until(lambda: processes() == 4)
        runner.send_signal(number)
        runner.wait(10)
        wait_until(lambda: processes() == 1)  # what carries the packets


def test_a_run_ends_with_its_ranks_whatever_they_leave(lab: WanLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltswitch.lab.wan_lab.GRACE_SECONDS", 0.1)
    out = io.StringIO()
    assert lab.run(["sh", "-c", "echo here; setsid sleep 62 & exit 3"], out) == 3
    assert sorted(out.getvalue().splitlines()) == ["a: here", "b: here", "c: here"]
    wait_until(lambda: processes() == 1)


def test_a_lab_whose_switch_has_ended_says_so_and_ends(lab: WanLab, tmp_path: Path) -> None:
    [carrier] = process_ids(f"{PREFIX}-_switch")
    os.kill(carrier, signal.SIGKILL)
    identity = read_record(tmp_path / "lab" / "process")
    assert identity is not None
    wait_until(lambda: not identity.alive)
    with pytest.raises(MachineError, match="is not up"):
        lab.ask("status")
    assert "what carried its packets has ended" in (tmp_path / "lab" / "log").read_text()


@pytest.mark.parametrize(
    "line",
    [
        b"3\n",
        b"{\n",
        b"\n",
        b"\xff\n",
        b"[" * 65_000 + b"\n",
        b'{"do": "change"}\n',
        b'{"do": "change", "x": 1}\n',
    ],
)
def test_odd_requests_are_answered(lab: WanLab, tmp_path: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "lab" / "socket"))
        connection.sendall(line)
        assert "error" in json.loads(connection.makefile().readline())
    assert len(lab.ask("status")["links"]) == 4


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_up_leaves_nothing(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from mltswitch.lab.wan_lab import WanLab; "
    code += "from mltswitch.overlay.wan import known_wan; "
    code += f"WanLab(Path({str(tmp_path / 'lab')!r}), {PREFIX!r}).up(known_wan('mesh16'), is_changing=True)"
    starter = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    lab = WanLab(tmp_path / "lab", PREFIX)
    try:
        wait_until(lambda: len(left_over()) > 1)
        starter.send_signal(signal.SIGINT)
        assert starter.wait(60) != 0
        assert not left_over()
        assert not lab.is_up
    finally:
        lab.down()
