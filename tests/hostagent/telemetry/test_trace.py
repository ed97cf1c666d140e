"""A trace: what is in it, and what a slow, full or missing disk does to it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentConfig
from mltswitch.hostagent.telemetry import trace
from mltswitch.hostagent.telemetry.events import PeerLost
from mltswitch.hostagent.telemetry.trace import TraceWriter
from tests.hostagent.background import eventually
from tests.hostagent.telemetry.examples import ended


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def lost(number: int) -> PeerLost:
    return PeerLost(
        peer=f"peer{number}", result="peer_unreachable", reason="it\nended \ud800", time_ns=number
    )


def test_events_are_lines_in_order(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("an older one\n")
    with TraceWriter(path) as writer:
        for event in (lost(1), ended(), lost(2)):
            writer.observe(event)
    writer.observe(lost(3))  # after its end
    first, *rest = lines(path)
    assert first["event"] == "trace_started"
    assert first["format_version"] == trace.FORMAT_VERSION
    assert [line["event"] for line in rest] == ["peer_lost", "transfer_ended", "peer_lost"]
    assert rest[0]["time_ns"] == 1
    assert rest[1]["result"] == "completed"
    assert rest[1]["statistics"]["packets_resent"] == 100
    assert rest[1]["statistics"]["packets_needless"] == 4
    assert rest[1]["statistics"]["ending"] == "percentage"
    assert rest[1]["statistics"]["deadline_seconds"] == 1.53
    assert rest[1]["statistics"]["seconds"] == 2.0
    assert rest[1]["statistics"]["goodput_bps"] == pytest.approx(3_600_000)


def test_it_is_written_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "FLUSH_SECONDS", 0.01)
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path) as writer:
        writer.observe(lost(1))
        eventually(lambda: len(path.read_text("utf-8").splitlines()) == 2)


def test_what_has_no_room_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_WAITING", 3)
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path) as writer:
        for number in range(10):
            writer.observe(lost(number))
    assert [line["event"] for line in lines(path)].count("peer_lost") <= 3
    assert lines(path)[-1]["event"] == "events_left_out"
    assert lines(path)[-1]["events"] >= 7


def test_a_full_disk_ends_it_with_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "FLUSH_SECONDS", 0.01)
    with caplog.at_level(logging.WARNING), TraceWriter(Path("/dev/full")) as writer:
        eventually(lambda: writer.has_failed)
        writer.observe(lost(1))
    assert [record.getMessage() for record in caplog.records] == [
        "trace /dev/full ends here: No space left on device"
    ]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be written: No such file or directory"):
        TraceWriter(tmp_path / "nowhere" / "trace.jsonl")


def test_an_agent_writes_the_events_that_its_file_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("name: one\nlisten: 127.0.0.1:0\ntrace: {folder: ., events: [agent_ended]}\n")
    with Agent(AgentConfig.load(file)):
        pass
    assert [line["event"] for line in lines(tmp_path / "one.jsonl")] == ["trace_started", "agent_ended"]
    file.write_text("name: one\nlisten: 127.0.0.1:0\ntrace: {folder: nowhere}\n")
    with pytest.raises(UserInputError, match="cannot be written: No such file"):
        Agent(AgentConfig.load(file))
