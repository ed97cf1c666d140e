"""Traces come back as they were written, and a disk's troubles are never the job's."""

import dataclasses
import json
import subprocess
import sys
import types
from collections.abc import Callable
from datetime import datetime
from enum import EnumType
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.telemetry import trace as module
from mltswitch.hostagent.telemetry.events import EVENTS, AgentEnded, AgentEvent, Warned
from mltswitch.hostagent.telemetry.reading import read_trace
from mltswitch.hostagent.telemetry.trace import EventsLeftOut, TraceStarted, TraceWriter, trace_line
from tests.hostagent.background import eventually

START = trace_line(TraceStarted(1, "2026-01-01T00:00:00+00:00", 1, "1.0")).decode()
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), 1 << 63),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    bool: st.booleans(),
    type(None): st.none(),
}


def strategy(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation in PLAIN:
        return PLAIN[annotation]
    if isinstance(annotation, EnumType):
        return st.sampled_from(list(annotation))
    if get_origin(annotation) in {Union, types.UnionType}:
        return st.one_of(*map(strategy, get_args(annotation)))
    if get_origin(annotation) is tuple:
        item, ellipsis = get_args(annotation)
        assert ellipsis is ...
        return st.lists(strategy(item), max_size=3).map(tuple)
    assert dataclasses.is_dataclass(annotation), annotation
    hints, make = get_type_hints(annotation), cast(Callable[..., Any], annotation)
    return st.builds(
        make, **{field.name: strategy(hints[field.name]) for field in dataclasses.fields(annotation)}
    )


any_event: st.SearchStrategy[AgentEvent] = st.one_of(*map(strategy, EVENTS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(any_event, max_size=5))
def test_round_trip(tmp_path: Path, events: list[AgentEvent]) -> None:
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path) as writer:
        for event in events:
            writer.observe(event)
    found = read_trace(path)
    assert found.events == tuple(events)
    assert not found.is_cut
    lines = path.read_text("utf-8").split("\n")
    assert len(lines) == len(events) + 2
    assert all(json.loads(line)["event"] for line in lines[:-1])


def test_names_of_events_are_unique() -> None:
    assert len({kind.name for kind in EVENTS}) == len(EVENTS)


def test_the_first_line_tells_both_clocks(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace") as writer:
        assert not writer.has_failed
    started = read_trace(tmp_path / "trace").started
    assert started.time_ns > 0
    assert datetime.fromisoformat(started.wall_time).tzinfo is not None


def test_events_are_in_the_file_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.001)
    with TraceWriter(tmp_path / "trace") as writer:
        writer.observe(Warned(1, "it rains"))
        eventually(lambda: len(read_trace(tmp_path / "trace").events) > 0)
        assert read_trace(tmp_path / "trace").events == (Warned(1, "it rains"),)


def test_what_comes_after_the_end_is_not_written(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace")
    writer.close()
    writer.observe(Warned(1, "late"))
    writer.close()
    assert read_trace(tmp_path / "trace").events == ()


def test_a_slow_disk_costs_events_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 3600.0)
    monkeypatch.setattr(module, "MAXIMUM_WAITING", 3)
    with TraceWriter(tmp_path / "trace") as writer:
        for number in range(10):
            writer.observe(Warned(number, ""))
    *kept, left_out = read_trace(tmp_path / "trace").events
    assert kept == [Warned(0, ""), Warned(1, ""), Warned(2, "")]
    assert isinstance(left_out, EventsLeftOut)
    assert left_out.events == 7


def test_text_that_is_no_unicode_does_not_end_the_trace(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace") as writer:
        writer.observe(Warned(1, "a\ud800b"))
        writer.observe(Warned(2, "é"))
    assert read_trace(tmp_path / "trace").events == (Warned(1, "a?b"), Warned(2, "é"))


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be written"):
        TraceWriter(tmp_path / "nowhere" / "trace")


def test_a_path_is_text_too(tmp_path: Path) -> None:
    with TraceWriter(str(tmp_path / "trace")) as writer:
        writer.observe(Warned(1, "hot"))
    assert read_trace(tmp_path / "trace").events == (Warned(1, "hot"),)


@pytest.mark.parametrize("path", [None, 1, b"trace", ["trace"]])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(UserInputError, match=r"^trace: .* is no path \(expected text, or a Path\)$"):
        TraceWriter(path)


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(UserInputError, match=r"^trace .*: cannot be written: embedded null"):
        TraceWriter("a\0b")


def test_a_disk_that_is_full_from_the_start() -> None:
    with pytest.raises(UserInputError, match="cannot be written: No space left"):
        TraceWriter(Path("/dev/full"))


FILLING = """
import logging, resource, signal, sys
from pathlib import Path
from mltswitch.hostagent.telemetry.events import Warned
from mltswitch.hostagent.telemetry import trace
logging.basicConfig(format="%(message)s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
trace.FLUSH_SECONDS = 0.001
writer = trace.TraceWriter(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
number = 0
while not writer.has_failed:
    writer.observe(Warned(number, "x" * 100))
    number += 1
writer.observe(Warned(0, "after the end"))
writer.close()
"""


def test_a_disk_that_is_full_later_ends_the_trace_with_one_warning(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    done = subprocess.run(
        [sys.executable, "-c", FILLING, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"trace {path} ends here: File too large" in done.stderr
    found = read_trace(path)
    assert found.events[:2] == (Warned(0, "x" * 100), Warned(1, "x" * 100))
    assert Warned(0, "after the end") not in found.events
    assert path.stat().st_size <= 10_000


def test_a_cut_last_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(START + trace_line(AgentEnded(2, "done"))[:-5].decode())
    found = read_trace(path)
    assert found.is_cut
    assert found.events == ()


def test_unknown_events_and_fields_are_those_of_later_versions(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(
        START
        + '{"event":"moon_rose","time_ns":3}\n'
        + '{"event":"warned","time_ns":4,"text":"x","phase":"full"}\n'
    )
    assert read_trace(path).events == (Warned(4, "x"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("nothing\n", "line 1: is no JSON"),
        ('{"event":"warned","time_ns":1,"text":""}\n', "is no trace"),
        (START.replace('"format_version":1', '"format_version":2'), "format 2"),
        (START + "[]\n", "line 2: names no event"),
        (START + '{"event":7}\n', "line 2: names no event"),
        (START + "[" * 100_000 + "\n", "line 2: is no JSON"),
        (START + '{"event":"warned","time_ns":1}\n', "line 2: warned: text"),
        (START + '{"event":"warned","time_ns":"1","text":""}\n', "line 2: warned: time_ns"),
        (START[:-5], "is no JSON"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(UserInputError, match=message):
        read_trace(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be read: No such file"):
        read_trace(tmp_path / "trace")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UserInputError, match="UTF-8"):
        read_trace(tmp_path / "binary")
