"""The page says what the code does."""

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from mltswitch.hostagent.telemetry.events import EVENTS
from tests.hostagent.programs import printed_by
from tests.hostagent.telemetry import schema

PATIENCE_SECONDS = 60.0
OUR_LOOPBACK = f"127.{2 + os.getpid() % 250}.{os.getpid() // 250 % 256}."
"""Other runs of the tests on this machine have others."""
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", schema.PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_tables_are_those_of_the_code() -> None:
    page = schema.PAGE.read_text("utf-8")
    assert schema.written(page) == page, "python -m tests.hostagent.telemetry.schema renews them"


def test_every_event_and_family_is_on_the_page() -> None:
    events, metrics = schema.events(), schema.metrics()
    for kind in EVENTS:
        assert f"### `{kind.name}`" in events
    assert metrics.count("\n") > 30
    assert "| `packets_lost` | integer \\| null |" in events


@pytest.mark.parametrize(
    ("program", "printed"), list(zip(PROGRAMS, ["AgentStarted", "_up 1.0"], strict=True))
)
def test_programs_run_as_they_stand(program: str, printed: str, tmp_path: Path) -> None:
    told = printed_by(program, tmp_path, loopback=OUR_LOOPBACK, patience_seconds=PATIENCE_SECONDS)
    assert printed in told
