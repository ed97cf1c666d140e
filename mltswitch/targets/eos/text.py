"""EOS configuration text as lines with their place: three spaces are one level, `!` is a comment."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

INDENTATION: Final = "   "
_FREE_TEXT: Final = re.compile(r"(?:banner (?:login|motd)|action bash|comment)")
"""Lines after which free text follows, up to a line `EOF`."""


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """One line and the modes in which it stands, outermost first."""

    number: int
    """Counts from 1."""
    modes: tuple[str, ...]
    text: str


def placed_lines(text: str) -> Iterator[PlacedLine]:
    """Every line that is no comment, with its modes, by indentation; free text is left out."""
    modes: list[str] = []
    in_free_text = False
    # Not splitlines: a configuration ends a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip(" \r")
        if in_free_text:
            in_free_text = stripped != "EOF"
            continue
        if not stripped or stripped.startswith("!"):
            continue
        depth = (len(line) - len(line.lstrip(" "))) // len(INDENTATION)
        del modes[depth:]
        yield PlacedLine(number, tuple(modes), stripped)
        modes.append(stripped)
        in_free_text = _FREE_TEXT.fullmatch(stripped) is not None


def indented(modes: tuple[str, ...], text: str) -> str:
    """One line as it stands in a configuration."""
    return INDENTATION * len(modes) + text
