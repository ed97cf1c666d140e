"""The line discipline of a terminal: bytes from the peer in, echo and finished lines out."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_LINE_CHARACTERS: Final = 4096
"""As a Linux terminal in canonical mode: what is typed beyond it is lost, with a bell."""

_CONTROL_C: Final = "\x03"
_CONTROL_D: Final = "\x04"
_CONTROL_U: Final = "\x15"
_ESCAPE: Final = "\x1b"


@dataclass(frozen=True, slots=True)
class Echo:
    """Characters to show on the peer's terminal."""

    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One finished line, without its end."""

    text: str


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Control-D on an empty line."""


EditorEvent = Echo | Line | EndOfInput


class LineEditor:
    """Collects characters into lines; CR, LF and CR LF each end one line.

    Backspace removes a character, control-U and control-C the whole line; escape sequences and other control
    characters are dropped. Fed whole or byte by byte, the same bytes give the same lines.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters: list[str] = []
        self._after_carriage_return = False
        self._escape = ""

    def feed(self, data: bytes) -> Iterator[EditorEvent]:
        """Events in the order in which they belong on the terminal."""
        for character in self._decoder.decode(data):
            yield from self._accept(character)

    def _accept(self, character: str) -> Iterator[EditorEvent]:
        is_second_half = character == "\n" and self._after_carriage_return
        self._after_carriage_return = character == "\r"
        if self._escape:
            self._swallow_escape(character)
        elif character == _ESCAPE:
            self._escape = character
        elif character in "\r\n":
            if not is_second_half:
                yield from self._finish()
        elif character in "\b\x7f":
            if self._characters:
                self._characters.pop()
                yield Echo("\b \b")
        elif character == _CONTROL_U:
            yield Echo("\b \b" * len(self._characters))
            self._characters.clear()
        elif character == _CONTROL_C:
            self._characters.clear()
            yield Echo("^C")
            yield from self._finish()
        elif character == _CONTROL_D:
            if not self._characters:
                yield EndOfInput()
        elif character.isprintable():
            yield self._insert(character)

    def _swallow_escape(self, character: str) -> None:
        """ESC [ parameters final, or ESC and one character (ECMA-48, section 5.4)."""
        if self._escape == _ESCAPE and character == "[":
            self._escape += character
        elif len(self._escape) == 1 or "@" <= character <= "~":
            self._escape = ""

    def _insert(self, character: str) -> Echo:
        if len(self._characters) >= MAX_LINE_CHARACTERS:
            return Echo("\a")
        self._characters.append(character)
        return Echo(character)

    def _finish(self) -> Iterator[EditorEvent]:
        line = "".join(self._characters)
        self._characters.clear()
        yield Echo("\n")
        yield Line(line)
