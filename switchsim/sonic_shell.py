"""The part of bash that switch automation needs: words, quotes, pipes, redirections, `!`, `&&`, `||`, `;`.

Of expansions only `$?`. All else that bash would treat specially (variables, globs, subshells, background
jobs, here-documents) is refused, never passed on as plain text.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final


class ShellSyntaxError(Exception):
    """The line is no bash, or bash that the emulator lacks."""


@dataclass(slots=True)
class SimpleCommand:
    """One program with its arguments and redirections."""

    words: list[str] = field(default_factory=list)
    stdin_path: str | None = None
    stdout_path: str | None = None
    append: bool = False
    stderr_path: str | None = None
    stderr_to_stdout: bool = False

    def with_status(self, status: int) -> "SimpleCommand":
        """The command as it is run after one that ended with this status."""

        def expand(text: str) -> str:
            return text.replace(STATUS_MARK, str(status))

        def expand_path(path: str | None) -> str | None:
            return None if path is None else expand(path)

        return replace(
            self,
            words=[expand(word) for word in self.words],
            stdin_path=expand_path(self.stdin_path),
            stdout_path=expand_path(self.stdout_path),
            stderr_path=expand_path(self.stderr_path),
        )


@dataclass(slots=True)
class Pipeline:
    """Commands joined by `|`; `runs_after` is the connector before it: `;`, `&&` or `||`."""

    runs_after: str
    commands: list[SimpleCommand]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_operator: bool


STATUS_MARK: Final = "\0"
"""Bash drops this character from its input, so that it can stand for the status, known only at run time."""

_OPERATORS: Final = ("2>&1", "<<", "&&", "||", ">>", "2>", "|", ";", ">", "<")
_REDIRECTIONS: Final = frozenset({">", ">>", "<", "2>"})
_SPECIAL: Final = re.compile(r"[$`*?\[\](){}!&~#<>]")
_DOUBLE_QUOTED_SPECIAL: Final = "$`"


def parse(line: str) -> list[Pipeline]:
    """Pipelines of one line; `$?` stands in them as STATUS_MARK. Raises ShellSyntaxError."""
    pipelines = [Pipeline(";", [SimpleCommand()])]
    tokens = iter(_tokens(line.replace(STATUS_MARK, "")))
    for token in tokens:
        command = pipelines[-1].commands[-1]
        if not token.is_operator:
            command.words.append(token.text)
        elif token.text in _REDIRECTIONS:
            target = next(tokens, None)
            if target is None or target.is_operator:
                raise ShellSyntaxError(
                    f"syntax error near unexpected token `{target.text if target else 'newline'}'"
                )
            _redirect(command, token.text, target.text)
        elif token.text == "2>&1":
            command.stderr_to_stdout = True
        elif not command.words:
            raise ShellSyntaxError(f"syntax error near unexpected token `{token.text}'")
        elif token.text == "|":
            pipelines[-1].commands.append(SimpleCommand())
        else:
            pipelines.append(Pipeline(token.text, [SimpleCommand()]))
    return _without_empty_end(pipelines)


def _without_empty_end(pipelines: list[Pipeline]) -> list[Pipeline]:
    last = pipelines[-1]
    if last.commands[-1].words:
        return pipelines
    if last.runs_after == ";" and last.commands == [SimpleCommand()]:
        return pipelines[:-1]
    raise ShellSyntaxError("syntax error: unexpected end of file")


def _redirect(command: SimpleCommand, operator: str, path: str) -> None:
    if operator == "<":
        command.stdin_path = path
    elif operator == "2>":
        command.stderr_path = path
    else:
        command.stdout_path = path
        command.append = operator == ">>"


def _tokens(line: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(line):
        if line[position] in " \t\n":
            position += 1
            continue
        operator = next((each for each in _OPERATORS if line.startswith(each, position)), None)
        if operator == "<<":
            raise ShellSyntaxError("`<<' is not part of this shell [emulator]")
        if operator is not None:
            tokens.append(_Token(operator, is_operator=True))
            position += len(operator)
            continue
        text, position = _word(line, position)
        tokens.append(_Token(text, is_operator=False))
    return tokens


def _word(line: str, position: int) -> tuple[str, int]:
    text = ""
    while position < len(line) and line[position] not in " \t\n;|<>":
        character = line[position]
        if character == "'":
            end = _closing(line, position, "'")
            text += line[position + 1 : end]
            position = end + 1
        elif character == '"':
            quoted, position = _double_quoted(line, position + 1)
            text += quoted
        elif character == "\\":
            text += line[position + 1 : position + 2]
            position += 2
        elif line.startswith("$?", position):
            text += STATUS_MARK
            position += 2
        elif line.startswith("&&", position):
            break
        elif _SPECIAL.match(character) and (text or not line.startswith("! ", position)):
            raise ShellSyntaxError(f"`{character}' is not part of this shell [emulator]")
        else:
            text += character
            position += 1
    return text, position


def _double_quoted(line: str, position: int) -> tuple[str, int]:
    text = ""
    while position < len(line) and line[position] != '"':
        if line.startswith("$?", position):
            text += STATUS_MARK
            position += 2
        elif line[position] in _DOUBLE_QUOTED_SPECIAL:
            raise ShellSyntaxError(f"`{line[position]}' is not part of this shell [emulator]")
        elif line[position] == "\\" and line[position + 1 : position + 2] in {"\\", '"', "$", "`"}:
            text += line[position + 1]
            position += 2
        else:
            text += line[position]
            position += 1
    if position >= len(line):
        raise ShellSyntaxError("unexpected EOF while looking for matching `\"'")
    return text, position + 1


def _closing(line: str, position: int, quote: str) -> int:
    end = line.find(quote, position + 1)
    if end < 0:
        raise ShellSyntaxError(f"unexpected EOF while looking for matching `{quote}'")
    return end
