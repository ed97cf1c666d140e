"""What an error prints is one line that steers no terminal."""

import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mltswitch
from mltswitch.errors import DeviceError, MltswitchError, printable

PRODUCT: Final = Path(mltswitch.__file__).parent


def test_an_error_says_where_what_was_expected_and_what_to_do() -> None:
    error = DeviceError('answers\n  "x"', where="leaf1", expected="a number", hint="look at it")
    assert str(error) == 'leaf1: answers "x" (expected a number). Look at it'


def test_a_command_in_a_hint_stays_as_it_is() -> None:
    assert str(MltswitchError("no numba", hint="`pip install x`")) == "no numba. `pip install x`"
    commands = re.compile(r"""hint=f?["'](pip|mltswitch|chmod|sysctl|modprobe|ip|tc|apt|sudo) """)
    assert [path for path in PRODUCT.rglob("*.py") if commands.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb", r"a\u202eb"),
        ("\udcff", r"\udcff"),
        ("Größe 5 µs ≥ 3…", "Größe 5 µs ≥ 3…"),
    ],
)
def test_what_is_not_printable_is_escaped(said: str, shown: str) -> None:
    assert printable(said) == shown
    assert str(DeviceError("x", where=said, expected=said, hint=f"see {said}")) == (
        f"{shown}: x (expected {shown}). See {shown}"
    )


@given(st.text(), st.text(), st.text(), st.text())
def test_an_error_is_one_printable_line(what: str, where: str, expected: str, hint: str) -> None:
    assert str(MltswitchError(what, where=where, expected=expected, hint=hint)).isprintable()


@given(st.text().filter(str.isprintable))
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
