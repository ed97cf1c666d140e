"""The part of bash that switch automation needs: words, quotes, pipes, redirections, `!`, `&&`, `||`, `;`.

Of bash's expansions it knows only `$?`. All else that bash would treat specially (variables, globs,
subshells, background jobs, here-documents) is refused, never passed on as plain text.
"""

import re
from dataclasses import dataclass, field
from typing import Final


class ShellSyntaxError(Exception):
    """The emulator refuses a line that is not valid bash, or uses a part of bash that it lacks."""


@dataclass(slots=True)
class SimpleCommand:
    """One program with its arguments and redirections."""

    words: list[str] = field(default_factory=list)
    redirections: dict[str, str] = field(default_factory=dict)
    """Redirection operator (`<`, `>`, `>>` or `2>`) → path of its file; `2>&1` → the empty string."""

    def with_status(self, status: int) -> "SimpleCommand":
        """A copy of the command with `$?` replaced by this exit status of the command before it."""

        def expand(text: str) -> str:
            return text.replace(STATUS_MARK, str(status))

        paths = {operator: expand(path) for operator, path in self.redirections.items()}
        return SimpleCommand([expand(word) for word in self.words], paths)


@dataclass(slots=True)
class Pipeline:
    """Commands joined by `|`; `runs_after` is the connector before it: `;`, `&&` or `||`."""

    runs_after: str
    commands: list[SimpleCommand]


STATUS_MARK: Final = "\0"
"""Stands for `$?`, known only at run time, in parsed words; bash drops this character (NUL) from input."""

_BLANKS: Final = " \t\n"
_INSIDE: Final = r'(?:\\[\\"$`]|\$\?|[^"$`\\]|\\(?![\\"$`]))*+'
"""Between double quotes: escaped characters, the status, others, and backslashes that escape nothing."""
_PLAIN: Final = r"[^ \t\n;|<>'\"\\$`*?\[\](){}!&~#]"
_PARTS: Final = rf"""(?:'[^']*'|"{_INSIDE}"|\\[\s\S]?|\$\?|{_PLAIN})"""
"""One part of a word: quoted, in double quotes, an escaped character, the status, or a plain character."""
_PART: Final = re.compile(_PARTS)
_WORD: Final = re.compile(rf"(?:!(?= )|{_PARTS}++)(?=[ \t\n;|<>]|&&|\Z)")
_OPERATOR: Final = re.compile(r"2>&1|<<|&&|\|\||>>|2>|[|;><]")
_REDIRECTIONS: Final = {"<": "", "2>": "", ">": ">>", ">>": ">"}
"""Operator → the other one of which the later counts."""


def parse(line: str) -> list[Pipeline]:
    """Split one line into its pipelines; `$?` stands in them as STATUS_MARK. Raises ShellSyntaxError."""
    pipelines = [Pipeline(";", [SimpleCommand()])]
    tokens = iter(_tokens(line.replace(STATUS_MARK, "")))
    for text, is_operator in tokens:
        command = pipelines[-1].commands[-1]
        if not is_operator:
            command.words.append(text)
        elif text in _REDIRECTIONS:
            path, is_wrong = next(tokens, ("newline", True))
            if is_wrong:
                raise ShellSyntaxError(f"syntax error near unexpected token `{path}'")
            command.redirections.pop(_REDIRECTIONS[text], None)
            command.redirections[text] = path
        elif text == "2>&1":
            command.redirections[text] = ""
        elif not command.words:
            raise ShellSyntaxError(f"syntax error near unexpected token `{text}'")
        elif text == "|":
            pipelines[-1].commands.append(SimpleCommand())
        else:
            pipelines.append(Pipeline(text, [SimpleCommand()]))
    last = pipelines[-1]
    if last.commands[-1].words:
        return pipelines
    if last.runs_after == ";" and last.commands == [SimpleCommand()]:
        return pipelines[:-1]
    raise ShellSyntaxError("syntax error: unexpected end of file")


def _tokens(line: str) -> list[tuple[str, bool]]:
    """Words without their quotes, and operators: (text, whether it is an operator)."""
    tokens = []
    rest = line.lstrip(_BLANKS)
    while rest:
        operator = _OPERATOR.match(rest)
        found = operator or _WORD.match(rest)
        if found is None or found[0] == "<<":
            raise _refusal(rest)
        tokens.append((found[0], True) if operator else (_unquoted(found[0]), False))
        rest = rest[found.end() :].lstrip(_BLANKS)
    return tokens


def _unquoted(word: str) -> str:
    text = ""
    for part in _PART.findall(word) or [word]:
        if part[0] == "'":
            text += part[1:-1]
        elif part[0] == '"':
            text += re.sub(r'\$\?|\\([\\"$`])', lambda found: found[1] or STATUS_MARK, part[1:-1])
        elif part[0] == "\\":
            text += part[1:]
        else:
            text += STATUS_MARK if part == "$?" else part
    return text


def _refusal(rest: str) -> ShellSyntaxError:
    """What stands here, after words that the emulator knows, and is part of no word."""
    while (found := _PART.match(rest)) is not None:
        rest = rest[found.end() :]
    wrong = "<<" if rest.startswith("<<") else rest[0]
    if wrong == '"':
        wrong = re.sub(_INSIDE, "", rest[1:], count=1)[:1] or wrong
    if wrong in {"'", '"'}:
        return ShellSyntaxError(f"unexpected EOF while looking for matching `{wrong}'")
    return ShellSyntaxError(f"`{wrong}' is not part of this shell [emulator]")
