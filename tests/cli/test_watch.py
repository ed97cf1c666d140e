"""`mltswitch watch` over real SSH: one session that stays, one that breaks, a terminal, and Ctrl-C."""

import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import click
import pytest

from mltswitch.app.live import PAGE_PORT
from mltswitch.cli import main
from mltswitch.cli.watch import PAGE_PLACE
from mltswitch.errors import UserInputError
from mltswitch.hostagent.telemetry.trace import TraceWriter
from switchsim import Faults
from switchsim.faults import Drop
from tests.cli.test_confirm import rack
from tests.hostagent.telemetry.examples import ended

pytestmark = pytest.mark.usefixtures("interruptible")
QUESTION = "show queue counters --json"


class Broken(Faults):
    """Hears every line, and hangs up at one question."""

    def __init__(self, broken: int) -> None:
        self.lines: list[str] = []
        self._broken = broken

    def on_line(self, number: int, line: str) -> Drop | None:
        """Break off once."""
        del number
        self.lines.append(line)
        asked = sum(QUESTION in each for each in self.lines)
        return Drop() if QUESTION in line and asked == self._broken else None


def watch(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["watch", *words, "--interval", "0.1"])
    captured = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, captured.out, captured.err


@pytest.mark.parametrize("broken", [0, 2])
def test_a_session_stays_open_and_is_opened_again(
    broken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = Broken(broken)
    with rack("sonic", tmp_path, faults) as (_, words):
        code, out, _ = watch(capsys, *words, "--count", "4", "--json")
    assert code == 0
    readings: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    devices = [each for reading in readings for each in reading["devices"]]
    assert [bool(each["error"]) for each in devices] == [number == broken for number in range(1, 5)]
    assert sum("show version" in line for line in faults.lines) == (2 if broken else 1)
    queue = devices[-1]["queues"][0]
    assert queue["counters"]["sent_packets"] == 0
    assert queue["counters"]["depth_bytes"] is None
    assert queue["dropped_per_second"] == 0
    assert devices[0]["queues"][0]["dropped_per_second"] is None


def test_without_a_terminal_it_prints_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rack("sonic", tmp_path) as (_, words):
        code, out, _ = watch(capsys, *words, "--count", "2")
    assert code == 0
    assert [line.split(" ", 1)[1] for line in out.splitlines()] == ["18 queues, all idle"] * 2


def test_where_no_device_answers_none_is_called_idle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rack("sonic", tmp_path) as (_, words):
        pass  # and is gone
    code, out, _ = watch(capsys, *words, "--count", "1")
    assert code == 4
    assert out.splitlines()[-1].endswith("1 of 1 devices could not be read")
    assert "idle" not in out


class Served:
    """The command as a process of its own, and where it says that its page and its metrics are."""

    def __init__(self, words: tuple[str, ...], *more: str) -> None:
        command = [sys.executable, "-m", "mltswitch", "watch", *words, "--interval", "0.2", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.places: dict[str, str] = {}
        wanted = {"--web": "page", "--prometheus": "metrics"}
        while self.places.keys() < {wanted[word] for word in more if word in wanted}:
            line = self.process.stderr.readline()
            assert line, "it has ended"
            name, _, place = line.strip().partition(": ")
            self.places[name] = place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> str:
        """What it has printed until its end by Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        out, error = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, error
        assert "Traceback" not in error
        return out


def test_a_page_and_metrics_of_real_counters_and_their_end_by_ctrl_c(tmp_path: Path) -> None:
    with (
        rack("sonic", tmp_path) as (switch, words),
        Served(words, "--web", "127.0.0.1:0", "--prometheus", "127.0.0.1:0") as served,
    ):
        port = int(served.places["page"].rsplit(":", 1)[1].strip("/"))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            lines = connection.makefile("r", encoding="utf-8")
            told = (json.loads(line[6:]) for line in lines if line.startswith("data: "))
            fabric = next(told)
            assert [tier["nodes"] for tier in fabric["tiers"]] == [["spine1"], ["leaf1"]]
            assert {
                "ends": [["leaf1", "Ethernet0"], ["host1", "eth0"]],
                "is_host": True,
                "rate_bps": 10**10,
            } in (fabric["links"])
            assert {each["level"] for each in next(told)["queues"]} == {"idle"}
            for number in count(1):  # more is dropped with each look, until a rate is seen
                switch.counted["Ethernet4", 5] = {"droppacket": 10 * number, "totalbytes": 1000 * number}
                worst = next(told)["queues"][0]
                if worst["level"] == "drops":
                    break
            assert (worst["switch"], worst["port"], worst["queue"]) == ("leaf1", "Ethernet4", 5)
            assert worst["dropped_per_second"] > 0
            assert worst["depth_bytes"] is None
            assert worst["ecn_threshold_bytes"] < worst["limit_bytes"]
            with urlopen(served.places["metrics"], timeout=60) as answer:  # noqa: S310  (ours)
                scraped = answer.read().decode()
            assert re.search(
                r"(?m)^mltswitch_switch_queue_dropped_packets_total\{.*Ethernet4.*\} [1-9]", scraped
            )
            assert 'mltswitch_switch_up{device="leaf1",switch="leaf1"} 1.0' in scraped
            assert served.interrupt() == ""  # to a pipe it prints nothing beside a page
            with suppress(ConnectionResetError):
                assert not [each for each in told if "at" not in each]


def test_beyond_loopback_the_printed_address_has_a_token(tmp_path: Path) -> None:
    with (
        rack("sonic", tmp_path) as (_, words),
        Served(words, "--web", "0.0.0.0:0", "--count", "1000") as served,
    ):
        assert re.fullmatch(rf"http://{socket.gethostname()}:\d+/[\w-]{{32}}/", served.places["page"])
        served.interrupt()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--web", "plan.yaml"), "--web: 'plan.yaml' is no IP address"),
        (("--prometheus", "0.0.0.0"), "open to other machines"),  # noqa: S104  (that is the point)
        (("--agents", "x"), "--agents: means nothing without --web"),
        (("--open-metrics",), "--open-metrics: means nothing without --prometheus"),
        (("--web", ":0", "--agents", "nothing.jsonl"), "nothing.jsonl: cannot be read"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rack("sonic", tmp_path) as (_, rest):
        code, out, error = watch(capsys, *rest, *words)
    assert code == 2
    assert not out
    assert said in error
    assert len(error.splitlines()) == 1


def documented() -> list[list[str]]:
    """Commands of docs/watch.md."""
    page = (Path(__file__).parents[2] / "docs" / "watch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("command", documented(), ids=" ".join)
def test_the_commands_of_the_page_work(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command[:5] == ["mltswitch", "watch", "plan.yaml", "-i", "inventories/rack"]
    monkeypatch.chdir(tmp_path)
    with TraceWriter(tmp_path / "host1.jsonl") as trace:
        trace.observe(ended())
    with rack("sonic", tmp_path) as (_, words):
        more = [re.sub(r":\d+$", ":0", word).replace("traces", str(tmp_path)) for word in command[5:]]
        if "--web" in more and not any(word.endswith(":0") for word in more):
            more.insert(more.index("--web") + 1, ":0")  # whatever port is free
        code, out, error = watch(capsys, *words, *more, "--count", "2")
    assert (code, out) == (0, "")
    name = "page" if "--web" in command else "metrics"
    assert re.match(rf"{name}: http://\S+:\d+/", error)


def test_a_platform_without_counters_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rack("onyx", tmp_path) as (_, words):
        code, out, error = watch(capsys, *words)
    assert code != 0
    assert not out
    assert len(error.splitlines()) == 1
    assert "platform onyx does not tell counters" in error


def test_ctrl_c_ends_a_live_table_well(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (_, words):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "mltswitch", "watch", *words, "--interval", "0.2", "--count", "100"]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "12"}
        process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment)
        os.close(theirs)
        shown = ""
        while "more" not in shown and (text := _rest(ours)):
            shown += text
        process.send_signal(signal.SIGINT)
        shown += "".join(iter(lambda: _rest(ours), ""))
        assert process.wait(30) == 0, process.stderr and process.stderr.read()
        os.close(ours)
    assert "waiting" in shown
    assert "leaf1" in shown
    assert "Traceback" not in shown


def _rest(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode()
    except OSError:  # nobody holds the other end any more
        return ""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (":9101", "127.0.0.1:9101"),
        ("localhost", f"127.0.0.1:{PAGE_PORT}"),
        ("localhost:9101", "127.0.0.1:9101"),
        ("::1", f"[::1]:{PAGE_PORT}"),
        ("::", f"[::]:{PAGE_PORT}"),
        ("fd00::7", f"[fd00::7]:{PAGE_PORT}"),
        ("[::1]:9101", "[::1]:9101"),
        ("10.0.0.1", f"10.0.0.1:{PAGE_PORT}"),
    ],
)
def test_places_of_the_page(text: str, place: str) -> None:
    assert str(PAGE_PLACE.convert(text, click.Option(["--web"]), None)) == place


@pytest.mark.parametrize("text", [":", ":http", ":99999", "::1:99999", "leaf1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UserInputError):
        PAGE_PLACE.convert(text, click.Option(["--web"]), None)
