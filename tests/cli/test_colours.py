"""Colours are for terminals, and nowhere with NO_COLOR; only one module makes consoles."""

import re
from pathlib import Path

import pytest
from rich.text import Text

from mltswitch.cli.output import console
from tests.cli.test_deploy import Terminal

PRODUCT = Path(__file__).parents[2] / "mltswitch"
COLOUR = "\x1b[31m"


@pytest.mark.parametrize(
    ("environment", "has_colour"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)]
)
def test_no_color_is_respected(
    environment: dict[str, str], has_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    console().print(Text("leaf1 does not answer", style="red"))
    assert (COLOUR in screen.getvalue()) is has_colour
    assert "leaf1 does not answer" in screen.getvalue()


def test_no_other_module_makes_a_console_or_colours_text() -> None:
    own = re.compile(r"\bConsole\(|\bclick\.style\(|\bsecho\(|\bfg=")
    found = {
        str(file.relative_to(PRODUCT))
        for file in PRODUCT.rglob("*.py")
        if own.search(file.read_text(encoding="utf-8"))
    }
    assert found == {"cli/output.py"}
