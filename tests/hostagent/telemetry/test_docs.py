"""The page says what the code does."""

import pytest

pytest.importorskip("prometheus_client")

from mltswitch.hostagent.telemetry.events import EVENTS
from tests.hostagent.telemetry import schema


def test_the_tables_are_those_of_the_code() -> None:
    page = schema.PAGE.read_text("utf-8")
    assert schema.written(page) == page, "python -m tests.hostagent.telemetry.schema renews them"


def test_every_event_and_family_is_on_the_page() -> None:
    events, metrics = schema.events(), schema.metrics()
    for kind in EVENTS:
        assert f"### `{kind.name}`" in events
    assert metrics.count("\n") > 30
    assert "| `packets_lost` | integer \\| null |" in events
