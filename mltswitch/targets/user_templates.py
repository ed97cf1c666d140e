"""A folder of templates that stand in for mltswitch's own: read and run as what nobody has reviewed.

A template may put lines in another order, leave comments or add some. What it makes is parsed as if an enemy
had written it, and has to say exactly what the plan says. It stands alone (no include, import or extends),
sees the values that mltswitch's own template of that name sees, and runs with limits on time, memory and
output.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any, Final

from jinja2 import Environment, PackageLoader, Template, TemplateSyntaxError, UndefinedError, nodes
from jinja2.exceptions import SecurityError

from mltswitch.documents import read_text
from mltswitch.errors import UserInputError
from mltswitch.targets.sandbox import UnboundedError, bounded, sandbox

SUFFIX: Final = ".j2"
MAXIMUM_TEMPLATE_CHARACTERS: Final = 2**18
MAXIMUM_OUTPUT_CHARACTERS: Final = 32 * 2**20
"""Twice the longest list of routes that a fabric may need."""
MAXIMUM_SHOWN_CHARACTERS: Final = 200
OUTSIDE: Final = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
"""What would read another file."""


@dataclass(frozen=True, slots=True)
class UserTemplate:
    """One checked template of a user."""

    file: Path
    template: Template
    text_lines: Mapping[str, tuple[int, ...]]
    """Text that is written as it stands → the lines where it begins."""

    def line_of(self, chunk: str, python_line: int) -> int:
        """The line that wrote a chunk; of plain text Jinja itself knows only what stands before it."""
        known = self.template.get_corresponding_lineno(python_line)
        return min((line for line in self.text_lines.get(chunk, ()) if line >= known), default=known)


class UserTemplates:
    """Templates by the name of the one that each replaces, and what they wrote for the device at hand."""

    def __init__(self, by_name: Mapping[str, UserTemplate]) -> None:
        self._by_name = by_name
        self._origins: dict[str, str] = {}
        """Rendered line → `file:line` of the template that wrote it first."""
        self._used: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def begin(self) -> None:
        """Forget the device before."""
        self._origins.clear()
        self._used.clear()

    def render(self, name: str, values: Mapping[str, object]) -> str:
        """Text of one template; raises UserInputError naming its file and line."""
        entry = self._by_name[name]
        answer = _told(entry.file, partial(_rendered, entry, values))
        text: str = answer["text"]
        self._used[str(entry.file)] = None
        for line, number in zip(text.split("\n"), answer["lines"], strict=True):
            self._origins.setdefault(line, f"{entry.file}:{number}")
        return text

    def origin(self, line: str) -> str | None:
        """`file:line` of the template that wrote this line; None: none of these did."""
        return self._origins.get(line)

    @property
    def used(self) -> tuple[str, ...]:
        """Files of the templates that wrote for the device at hand."""
        return tuple(self._used)


def load_templates(folder: Path) -> UserTemplates:
    """Every template of a folder `<platform>/<file>.j2`; raises UserInputError naming file and line."""
    try:
        files = dict(_find(folder))
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(folder)) from None
    if not files:
        raise UserInputError(
            "holds no template", where=str(folder), expected=f"some of {', '.join(bundled_names())}"
        )
    return UserTemplates({name: _read(file) for name, file in files.items()})


@cache
def bundled_names() -> tuple[str, ...]:
    """Names of mltswitch's own templates."""
    return tuple(PackageLoader("mltswitch", "templates").list_templates())


def _find(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file); hidden files and what is no template are left alone."""
    platforms = {name.partition("/")[0] for name in bundled_names()}
    for path in sorted(folder.iterdir()):
        if path.name in platforms:
            _refuse_link(path)
            yield from _find_below(path)
        elif path.suffix == SUFFIX or (path.is_dir() and _holds_template(path)):
            raise UserInputError(
                f"replaces no template of mltswitch: {path.name!r}",
                where=str(folder),
                expected=f"some of {', '.join(bundled_names())}",
            )


def _find_below(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.suffix != SUFFIX:
            continue
        name = f"{folder.name}/{path.name}"
        if name not in bundled_names():
            own = [known for known in bundled_names() if known.startswith(f"{folder.name}/")]
            raise UserInputError(
                f"replaces no template of mltswitch: {name!r}",
                where=str(folder),
                expected=f"some of {', '.join(own)}",
            )
        _refuse_link(path)
        yield name, path


def _holds_template(folder: Path) -> bool:
    return any(path.suffix == SUFFIX for path in folder.iterdir())


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise UserInputError("is a link, which is not followed here", where=str(path))


def _read(file: Path) -> UserTemplate:
    """The template, first compiled where that cannot take more than it may."""
    source = read_text(file)
    if len(source) > MAXIMUM_TEMPLATE_CHARACTERS:
        raise UserInputError(f"longer than {MAXIMUM_TEMPLATE_CHARACTERS} characters", where=str(file))
    _told(file, partial(_checked, source, str(file)))
    made = sandbox()
    template = Template.from_code(made, _compile(made, source, str(file)), made.make_globals(None))
    text_lines: dict[str, tuple[int, ...]] = {}
    for node in made.parse(source, name=str(file), filename=str(file)).find_all(nodes.TemplateData):
        text_lines[node.data] = (*text_lines.get(node.data, ()), node.lineno)
    return UserTemplate(file, template, text_lines)


def _compile(made: Environment, source: str, file: str) -> CodeType:
    return made.compile(source, name=file, filename=file)


def _checked(source: str, file: str) -> dict[str, Any]:
    made = sandbox()
    try:
        for node in made.parse(source, name=file, filename=file).find_all(OUTSIDE):
            return {"what": "reads another template: each stands alone", "line": node.lineno}
        _compile(made, source, file)
    except TemplateSyntaxError as error:
        return {"what": error.message or "is no template", "line": error.lineno}
    except RecursionError:
        return {"what": "is nested too deep", "line": None}
    except Exception as error:  # noqa: BLE001  (what the compiler makes of an enemy's template is not known)
        return {"what": f"cannot be compiled: {_shown(error)}", "line": None}
    return {}


def _rendered(entry: UserTemplate, values: Mapping[str, object]) -> dict[str, Any]:
    """The text, and for each of its lines the template's line; or what is wrong, and where."""
    chunks: list[str] = []
    lines = [1]
    size = 0
    try:
        running: Any = entry.template.root_render_func(entry.template.new_context(dict(values)))
        for chunk in running:
            size += len(chunk)
            number = entry.line_of(chunk, running.gi_frame.f_lineno)
            if size > MAXIMUM_OUTPUT_CHARACTERS:
                return {"what": f"writes more than {MAXIMUM_OUTPUT_CHARACTERS} characters", "line": number}
            if not chunks or chunks[-1].endswith("\n"):
                lines[-1] = number
            is_plain = chunk in entry.text_lines
            lines += [number + step if is_plain else number for step in range(1, chunk.count("\n") + 1)]
            chunks.append(chunk)
    except MemoryError:
        raise
    except RecursionError as error:
        return {"what": "calls itself too often", "line": _line_of(error, entry)}
    except (SecurityError, UndefinedError) as error:
        return {"what": _shown(error, named=False), "line": _line_of(error, entry)}
    except Exception as error:  # noqa: BLE001  (a template may raise anything)
        return {"what": f"fails: {_shown(error)}", "line": _line_of(error, entry)}
    return {"text": "".join(chunks), "lines": lines}


def _line_of(error: Exception, entry: UserTemplate) -> int | None:
    """The template's line in which an error rose: that of the innermost frame of its code."""
    found: int | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(entry.file):
            found = entry.template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return found


def _shown(error: Exception, *, named: bool = True) -> str:
    text = f"{type(error).__name__}: {error}" if named else str(error)
    return text[:MAXIMUM_SHOWN_CHARACTERS]


def _told(file: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work answers; raises UserInputError for a problem or too much of it."""
    try:
        answer: dict[str, Any] = bounded(work)
    except UnboundedError as error:
        raise UserInputError(str(error), where=str(file)) from None
    if "what" in answer:
        line = answer["line"]
        raise UserInputError(answer["what"], where=f"{file}:{line}" if line else str(file))
    return answer
