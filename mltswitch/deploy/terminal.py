"""Recognizes what a command line prints beside its answers (prompts, pagers, questions), from text alone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

PROMPT_CHARACTERS: Final = 8
"""How many characters of its host name a prompt must show: configuration modes shorten longer names."""

MAXIMUM_LINE: Final = 300
"""The most characters of a prompt or a question; a longer line is neither."""

_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Z]|[=>A-Z78])|[\x00\x07]"
)
"""What steers a terminal (ECMA-48): control sequences, titles, character sets; and the bell."""
_LINE_END: Final = re.compile(r"\r+\n?|\n\r")
_PROMPT: Final = re.compile(r"(?=.*[A-Za-z]).{1,160}[>#$]\s*")
_WORD: Final = re.compile(r"[\w.-]*[A-Za-z][\w.-]*")
_BRACKETS: Final = re.compile(r"\([^()\n]*\)|\[[^][\n]*\]|\{[^{}\n]*\}")
_CHANGING: Final = rf"(?:[^A-Za-z\n([{{]|{_BRACKETS.pattern})*[(\[{{]?"
"""What may stand before a name and change: brackets, and what holds no letters."""
_MODE: Final = re.compile(r"\([^()]*[A-Za-z][^()]*\)")

_MORE: Final = r"[ \t]*[<(=-]+[ \t]*\(?more\b"
_PAGE: Final = r"[ \t]*(?:lines? [0-9]+(?:-[0-9]+)?(?:/[0-9]+)?(?: ?[0-9]+%)?(?: ?\(END\))?|\(END\))[ \t]*"
_MARKER: Final = re.compile(
    rf"^{_MORE}[^a-z\n]{{0,16}}(?:or \(q\)uit|next page[^\n\b]*)?[ \t]*(?:\x08|$)|^(?:{_PAGE}\x08"
    rf"|(?![ \t]*line [0-9]+[ \t]*$){_PAGE}$)|(?<!-)-{{2,}}[ \t]*\(?more\)?[^\n]{{0,12}}-{{2,}}[ \t]*\x08",
    re.IGNORECASE | re.MULTILINE,
)
"""The whole of a line, or erased by backspaces: banners and descriptions have such words, too."""
_CURSOR_LEFT: Final = re.compile(r"\x1b\[[0-9]*D")
_WAITS: Final = re.compile(
    rf"{_MORE}.*|{_PAGE}|:|.*\(q\)uit.*|.*\bq(?:uit)? to (?:quit|exit|abort).*"
    r"|.*press .{0,20}(?:key|space|enter|return)\b.{0,40}|.*(?:space|any key) (?:to continue|for more).*",
    re.IGNORECASE,
)
"""Of EOS and klish (`--More--`), FASTPATH (`--More-- or (q)uit`), Onyx (`lines 1-23`), less, and others."""
_PASSWORD: Final = re.compile(r".*(?:password|passcode|passphrase)\b[^\n]{0,40}:\s*", re.IGNORECASE)
_QUESTION: Final = re.compile(
    r".*(?:\?|\[?\(?(?:y/n|yes/no)\)?\]?\s*:?|(?:login|user ?name):)\s*", re.IGNORECASE
)
_EXPIRED: Final = re.compile(r".*password.*(?:expired|must be changed).*|.*must change.*", re.IGNORECASE)


def plain(received: bytes | bytearray) -> str:
    """Received bytes as text: terminal control sequences removed, each line end a line feed."""
    text = received.decode("utf-8", "ignore").replace("\x1bE", "\n")
    return _LINE_END.sub("\n", _ESCAPE.sub("", _CURSOR_LEFT.sub("\b", text)))


def last_line(text: str) -> str:
    """The unfinished last line of a text, where prompts and questions stand; empty if it is too long."""
    line = text.rpartition("\n")[2]
    return line if len(line) <= MAXIMUM_LINE else ""


def may_be_prompt(line: str) -> bool:
    """Whether an unfinished line looks like a prompt of some command line."""
    return _PROMPT.fullmatch(line) is not None


def pager_in(answer: str) -> str:
    """The line of a complete answer that holds a pager's marker; empty where there is none."""
    match = _MARKER.search(answer)
    return "" if match is None else answer[match.start() :].strip().partition("\n")[0].partition("\b")[0]


def waits_for_key(line: str) -> bool:
    """Whether an unfinished line is a pager's, or asks for a key to be pressed."""
    return _WAITS.fullmatch(line.strip()) is not None


def asks_password(line: str) -> bool:
    """Whether an unfinished line asks for a password."""
    return _PASSWORD.fullmatch(line) is not None


def asks(line: str) -> bool:
    """Whether an unfinished line asks for input: a password, a name, yes or no."""
    return asks_password(line) or _QUESTION.fullmatch(line) is not None


def expired(greeting: str) -> str:
    """The line of a greeting that says that a password has to be changed; empty where there is none."""
    lines = (line.strip() for line in greeting.splitlines() if len(line) <= MAXIMUM_LINE)
    return next(filter(_EXPIRED.fullmatch, lines), "")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A device's prompt: what two sightings of it share, and what modes, clocks and counters may change."""

    pattern: re.Pattern[str]
    usual: frozenset[str]
    """Words in round brackets that the prompt has in privileged mode, digits left out."""

    @classmethod
    def seen_twice(cls, first: str, second: str) -> Self | None:
        """The prompt of which these are two sightings; None where they share no word, or end differently.

        The word, a host name as a rule, is the first outside brackets, else the first inside. What stands
        before it may change where it is in brackets or holds no letters, and digits may change everywhere.
        """
        if not (may_be_prompt(first) and may_be_prompt(second) and first.strip()[-1] == second.strip()[-1]):
            return None
        others = {_form(word) for word in _words(second)}
        name = next((word for word in _words(first) if _form(word) in others), None)
        if name is None:
            return None
        before = {_general(first[: first.index(name)])}
        at = re.search(_general(name), second)
        before |= set() if at is None else {_general(second[: at.start()])}
        begins = "|".join((*before, _CHANGING))
        kept = _general(name[:PROMPT_CHARACTERS])
        pattern = re.compile(rf"(?:{begins})(?P<name>{kept}).*[>#]\s*")
        bare = cls(pattern, frozenset())
        return cls(pattern, frozenset(map(_form, (*bare.mode(first), *bare.mode(second)))))

    def fits(self, line: str) -> bool:
        """Whether an unfinished line is this prompt, in whichever mode."""
        return len(line) <= MAXIMUM_LINE and self.pattern.fullmatch(line) is not None

    def mode(self, line: str) -> tuple[str, ...]:
        """The words in round brackets that tell a configuration mode; empty in privileged mode."""
        match = self.pattern.match(line)
        shown: Iterable[str] = () if match is None else _MODE.findall(line, match.end("name"))
        return tuple(each for each in shown if _form(each) not in self.usual)


def _words(prompt: str) -> list[str]:
    return [*_WORD.findall(_BRACKETS.sub(" ", prompt)), *_WORD.findall(prompt)]


def _form(text: str) -> str:
    return re.sub(r"[0-9]+", "0", text)


def _general(text: str) -> str:
    return re.sub(r"[0-9]+", "[0-9]+", re.escape(text))
