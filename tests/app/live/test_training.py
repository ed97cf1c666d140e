"""What agents of a job tell on the page, from traces that are being written."""

import json
import os
import re
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.app.live import training
from mltswitch.app.live.picture import state
from mltswitch.app.live.server import serve_page
from mltswitch.app.live.training import AgentWatch
from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentConfig
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.telemetry.events import GradientsLeftOut, TransferEnded
from mltswitch.hostagent.telemetry.trace import TraceWriter
from mltswitch.plan import Plan
from mltswitch.training.rounds import CHANNEL, EPOCHS
from tests.app.live.examples import reading
from tests.hostagent.telemetry.examples import SECOND, STATISTICS, ended, learned


def step(number: int, at_ns: int, direction: str = "receive", result: str = "completed") -> TransferEnded:
    return replace(
        ended(result, direction),
        channel=CHANNEL,
        round_number=number * EPOCHS,
        time_ns=at_ns,
        reason="gone" * (result != "completed"),
    )


def write(path: Path, *events: Any) -> None:
    with TraceWriter(path) as trace:
        for event in events:
            trace.observe(event)


def test_steps_losses_and_who_is_behind(tmp_path: Path) -> None:
    now_ns = time.monotonic_ns()
    write(tmp_path / "host1-0.jsonl", *(step(n, now_ns + n * SECOND // 5) for n in (7, 7, 8, 9, 11)))
    out = GradientsLeftOut(
        first_step=0, last_step=99, network_share=0.02, bound_share=0.01, layer="c", layer_share=0.1
    )
    failed = step(10, now_ns, "send", "deadline_exceeded")
    write(tmp_path / "host2-1.jsonl", step(10, now_ns), failed, out, learned())
    first, second = AgentWatch([tmp_path]).read()[0]
    assert [first["agent"], first["step"]] == ["host2-1", 10]  # who is behind comes first
    assert [second["agent"], second["step"]] == ["host1-0", 11]
    assert second["step_seconds"] == pytest.approx(0.2)
    assert first["step_seconds"] is None  # one step says nothing of how long it took
    assert first["missing_share"] == pytest.approx(0.1)
    assert first["marked_share"] == pytest.approx(7 / 900)
    assert (first["failed"], first["reason"]) == (1, "gone")
    assert first["left_out"] == {"first_step": 0, "last_step": 99, "network_share": 0.02, "bound_share": 0.01}
    assert first["received_bps"] is None  # rates are of the time between two looks


def test_agents_that_exchange_tensors(tmp_path: Path) -> None:
    """Two real agents: what their traces have is what the page needs."""
    configs = [AgentConfig(name=name, listen="127.0.0.1:0") for name in ("worker", "server")]
    with ExitStack() as stack:
        traces = [stack.enter_context(TraceWriter(tmp_path / f"{each.name}.jsonl")) for each in configs]
        worker, server = (
            stack.enter_context(Agent(config, observers=[trace]))
            for config, trace in zip(configs, traces, strict=True)
        )
        channels = [each.channel(CHANNEL) for each in (worker, server)]
        worker.connect("server", server.listening_at)
        server.wait_for_peers(["worker"], timeout_seconds=60)
        for number in range(3):
            memory = np.zeros(250_000, np.float32)
            options: Any = {"tensor": 7, "round_number": number * EPOCHS, "deadline_seconds": 60}
            there = channels[1].post_receive("worker", memory, **options)
            here = channels[0].post_send("server", memory.copy(), **options)
            there.wait(), here.wait()
    agents = {each["agent"]: each for each in AgentWatch([tmp_path]).read()[0]}
    assert {name: (each["step"], each["failed"]) for name, each in agents.items()} == {
        "worker": (2, 0),
        "server": (2, 0),
    }
    assert agents["server"]["missing_share"] == 0
    assert agents["server"]["step_seconds"] > 0
    assert agents["worker"]["missing_share"] is None  # it receives nothing


def test_rates_are_of_the_time_since_the_look_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1000 * SECOND, 1002 * SECOND, 1004 * SECOND])
    path = tmp_path / "host1.jsonl"
    write(path, step(1, 0))
    watch = AgentWatch([path])
    monkeypatch.setattr("mltswitch.app.live.training.time.time_ns", lambda: next(clock))
    watch.read()
    with path.open("a") as file:
        for direction in ("receive", "send"):
            lines = path.read_text().splitlines()
            event = json.loads(lines[-1]) | {"direction": direction, "round_number": 2 * EPOCHS}
            file.write(json.dumps(event) + "\n")
        file.write('{"event": "transfer_ended", "time')  # the rest is being written
    ((agent,), problems) = watch.read()
    assert not problems
    assert agent["received_bps"] == STATISTICS.bytes_received * 8 / 2
    assert agent["resent_per_second"] == STATISTICS.packets_resent / 2
    ((agent,), _) = watch.read()
    assert agent["received_bps"] == 0
    assert agent["missing_share"] is None
    assert agent["step"] == 2


def test_of_a_long_trace_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training._Trace, "most_behind_bytes", 3000)
    write(tmp_path / "a.jsonl", *(step(n, n) for n in range(50)), step(3, 99, result="cancelled"))
    ((agent,), _) = AgentWatch([tmp_path]).read()
    assert agent["step"] == 49
    assert agent["failed"] == 1


def test_a_trace_that_goes_bad_is_a_line_and_a_wrong_file_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", step(1, 0))
    watch = AgentWatch([tmp_path])
    watch.check()
    (tmp_path / "a.jsonl").write_text("no trace\n")
    _, problems = watch.read()
    assert problems == [f"{tmp_path}/a.jsonl: is no trace of an agent"]
    write(tmp_path / "b.jsonl", step(1, 0))
    text = (tmp_path / "b.jsonl").read_text()
    (tmp_path / "b.jsonl").write_text(text.replace("900", "NaN"))
    for wrong in (tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "none.jsonl"):
        with pytest.raises(UserInputError):
            AgentWatch([wrong]).check()


def test_another_agent_in_the_same_file_begins_anew(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", step(9, 0, result="cancelled"))
    watch = AgentWatch([tmp_path])
    assert watch.read()[0][0]["failed"] == 1
    write(tmp_path / "a.jsonl", step(2, 0))
    ((agent,), _) = watch.read()
    assert (agent["step"], agent["failed"]) == (2, 0)


def altered(path: Path, **fields: str) -> None:
    """Write a trace whose last event has other JSON texts as values, wherever they stand in it."""
    *lines, last = path.read_text().splitlines()
    for name, text in fields.items():
        [found] = re.finditer(rf'"{name}": ("[^"]*"|[^,}}]+)', last)
        last = last[: found.start(1)] + text + last[found.end(1) :]
    path.write_text("\n".join([*lines, last]) + "\n")


NO_NUMBERS = ("1e999", "-1e999", "9" * 400, '"7"', "{}", "true", "null")


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("name", ["round_number", "time_ns", "bytes_received", "network_share", "first_step"])
def test_no_value_of_a_trace_ends_the_watch(name: str, value: str, tmp_path: Path, lab_plan: Plan) -> None:
    out = GradientsLeftOut(
        first_step=0, last_step=99, network_share=0.02, bound_share=0.01, layer="c", layer_share=0.1
    )
    write(tmp_path / "a.jsonl", out if name in {"network_share", "first_step"} else step(1, 0))
    altered(tmp_path / "a.jsonl", **{name: value})
    watch = AgentWatch([tmp_path])
    agents, problems = watch.read()
    if (name, value) != ("bytes_received", "null"):  # nothing was received
        assert problems == [f"{tmp_path}/a.jsonl: is no trace of an agent"]
    with serve_page(Endpoint("127.0.0.1", 0), {}) as page:
        page.publish(state(reading(lab_plan), agents, problems))
        page.publish(state(reading(lab_plan), *watch.read()))


def test_words_that_are_no_text_are_shown_escaped(tmp_path: Path, lab_plan: Plan) -> None:
    path = tmp_path / os.fsdecode(b"host\xff.jsonl")
    write(path, step(1, 0, result="cancelled"))
    altered(path, reason=r'"\ud800\n' + "x" * 10_000 + '"')
    agents, problems = AgentWatch([tmp_path]).read()
    assert (agents[0]["agent"], agents[0]["reason"][:10], problems) == (r"host\udcff", r"\ud800\nxx", [])
    assert len(agents[0]["reason"]) < 1000
    seen = reading(lab_plan)
    broken = replace(seen.devices[0], error="\ud800 says leaf1")
    with serve_page(Endpoint("127.0.0.1", 0), {}) as page:
        page.publish(state(replace(seen, devices=(broken, *seen.devices[1:])), agents, problems))


@pytest.mark.parametrize(
    "first",
    [
        '{"event":"x"}',
        '{"wall_time": "2026-11-30T00:00:00+00:00", "time_ns": 1e999}',
        '{"wall_time": "0001-01-01T00:00:00+00:00", "time_ns": "now"}',
        "[]",
    ],
)
def test_a_file_that_is_no_trace_stays_none(first: str, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", step(1, 0))
    event = (tmp_path / "a.jsonl").read_text().splitlines()[-1]
    (tmp_path / "b.jsonl").write_text(f"{first}\n{event}\n")
    watch = AgentWatch([tmp_path / "b.jsonl"])
    for _ in range(3):
        assert watch.read() == ([], [f"{tmp_path}/b.jsonl: is no trace of an agent"])
    (tmp_path / "b.jsonl").write_text((tmp_path / "a.jsonl").read_text())
    ((agent,), problems) = watch.read()
    assert (agent["step"], problems) == (1, [])
