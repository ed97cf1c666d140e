"""What is made from the definition of our headers, byte by byte; `make golden` rewrites it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mltswitch.wire.p4 import p4_text
from mltswitch.wire.tables import with_current_tables

ROOT = Path(__file__).parents[2]
MADE: dict[str, Callable[[str], str]] = {
    "mltswitch/p4/wire.p4": lambda _: p4_text(),
    "docs/wire-format.md": with_current_tables,
}
"""File → what it must say, given what it says."""


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_from_the_headers_is_current(name: str, update_golden: bool) -> None:
    file = ROOT / name
    text = MADE[name](file.read_text(encoding="utf-8"))
    if update_golden:
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, f"{name} is out of date: make golden"
