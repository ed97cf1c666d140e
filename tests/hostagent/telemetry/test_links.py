"""What a job's ranks know of its links, read from their traces while these are written."""

import time
from pathlib import Path
from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.telemetry import trace
from mltswitch.hostagent.telemetry.links import LinkWatch
from mltswitch.hostagent.telemetry.trace import TraceWriter
from tests.hostagent.background import eventually
from tests.hostagent.telemetry.examples import SECOND, ended, learned

links_of: Any = LinkWatch


def test_a_trace_is_read_on_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "FLUSH_SECONDS", 0.01)
    path, now_ns = tmp_path / "one.jsonl", time.monotonic_ns()
    path.touch()  # its agent has written nothing yet
    watch = links_of([path])
    assert watch.read() is None
    with TraceWriter(path) as writer:
        for event in (ended(), learned(None, version=1, at_ns=now_ns - 60 * SECOND)):
            writer.observe(event)
        eventually(watch.read)
        known = watch.read()
        assert known["version"] == 1
        unknown = {"said_bps": 2e6, "measured_bps": None, "age_seconds": None}
        assert known["links"] == [{"source": "a", "target": "b", **unknown}]
        writer.observe(learned(1e6, at_ns=now_ns - 30 * SECOND))
        writer.observe(learned(3e6, at_ns=now_ns - 10 * SECOND, source="c"))
        eventually(lambda: len(watch.read()["links"]) == 2)
    known = watch.read()
    assert (known["version"], known["refused"]) == (9, 3)
    assert known["version_age_seconds"] == pytest.approx(30, abs=5)
    assert [link["measured_bps"] for link in known["links"]] == [1e6, 3e6]
    assert known["links"][1]["age_seconds"] == pytest.approx(10, abs=5)
    with path.open("a") as file:
        file.write('{"event": "links_measured", "ver')  # the rest comes later
    assert watch.read()["version"] == 9
    TraceWriter(path).close()  # another agent
    assert watch.read() is None


def test_of_several_ranks_the_one_that_told_last_is_shown(tmp_path: Path) -> None:
    watch, now_ns = links_of([tmp_path]), time.monotonic_ns()
    assert watch.read() is None
    for name, version, age in (("a", 5, 3), ("b", 9, 1), ("c", 7, 2)):
        with TraceWriter(tmp_path / f"{name}.jsonl") as writer:
            writer.observe(learned(version=version, at_ns=now_ns - age * SECOND))
    assert watch.read()["version"] == 9


STARTED = b'{"wall_time": "2026-01-01T00:00:00+00:00", "time_ns": 1}\n'


@pytest.mark.parametrize(
    "content",
    [
        b"[1]\n",
        b"\xff\xfe\n",
        b"[" * 5000,
        STARTED.replace(b"2026", b"noon"),
        STARTED + b'{"event": "links_measured"}\n',
    ],
)
def test_what_is_no_trace_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(UserInputError, match="notes: is no trace of an agent"):
        LinkWatch([path]).read()
