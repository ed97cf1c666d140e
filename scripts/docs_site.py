"""What `make docs` adds to the pages of docs/: hooks of mkdocs.

The command line, the JSON schemas and the Python interface are written from the code. A file of the
repository outside docs/ to which a page links becomes a page, too, so that the same relative links lead
somewhere on a forge and in the site, and a link to a file that is gone fails the build.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from mltswitch.cli import COMMANDS, cli
from mltswitch.cli.plan import DOCUMENTS

ROOT: Final = Path(__file__).parents[1]
PUBLIC: Final = {
    "mltswitch": None,
    "mltswitch.hostagent": None,
    "mltswitch.queueing": None,
    "mltswitch.training.pytorch.backend": ("MltOptions",),
}
"""Module → the names that users import from it; None: all that its `__all__` has."""
HELP_COLUMNS: Final = 80
_LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_FENCE: Final = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".h": "c", ".c": "c"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages in their places of the navigation."""
    reference: list[Any] = next(part["Reference"] for part in config.nav or [] if "Reference" in part)
    commands: list[Any] = [{name: f"reference/commands/{name}.md"} for name in COMMANDS]
    reference[:0] = [
        {"Commands": ["reference/commands/index.md", *commands]},
        {"JSON schemas": "reference/schemas.md"},
        {"Python": "reference/python.md"},
    ]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code, and those of linked files."""
    for path, text in generated():
        files.append(File.generated(config, path, content=text))
    wanted = [
        file for page in files.documentation_pages() for file in linked(page.src_uri, page.content_string)
    ]
    seen: set[str] = set()
    while wanted:  # a linked page links to others
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        text = repository_page(name)
        files.append(
            File.generated(config, site_path(name), content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        )
        if name.endswith(".md"):
            wanted += linked(f"../{name}", text)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Lead links out of docs/ to the pages that stand for what is there."""
    source = page.file.src_uri
    is_ours = source.startswith("repository/")
    origin = f"../{source.removeprefix('repository/').removesuffix('.md')}" if is_ours else source
    if is_ours and not origin.endswith(".md"):
        return markdown  # a file in a fence
    return with_site_links(markdown, origin, source)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001  (mkdocs gives them)
    """The page with a name for its search, which the theme forgets and screen readers read out."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def generated() -> Iterator[tuple[str, str]]:
    """Path in the site and text of every page that is made from the code."""
    yield "reference/commands/index.md", f"# Commands\n\n{_help('mltswitch', cli, None)}"
    for name, command in _below(cli, click.Context(cli)):
        yield f"reference/commands/{name}.md", "\n".join(command_sections(name, command, None))
    yield "reference/schemas.md", "\n".join(_schemas())
    for name, model in DOCUMENTS.items():
        schema = json.dumps(model.model_json_schema(by_alias=True), indent=2)
        yield f"reference/{name}.schema.json", f"{schema}\n"
    yield "reference/python.md", "\n".join(_python())


def command_sections(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    """What `--help` prints of a command and of all below it, each under its own heading."""
    context = _context(name, command, parent)
    yield f"{'#' if parent is None else '##'} {context.command_path}\n"
    yield _help(name, command, parent)
    if isinstance(command, click.Group):
        for each, below in _below(command, context):
            yield from command_sections(each, below, context)


def _below(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        if (command := group.get_command(context, name)) is not None:
            yield name, command


def _context(name: str, command: click.Command, parent: click.Context | None) -> click.Context:
    if parent is None and command is not cli:
        parent = _context("mltswitch", cli, None)
    settings: dict[str, Any] = {**command.context_settings, "terminal_width": HELP_COLUMNS}
    return command.context_class(command, info_name=name, parent=parent, **settings)


def _help(name: str, command: click.Command, parent: click.Context | None) -> str:
    return f"```text\n{command.get_help(_context(name, command, parent))}\n```\n"


def _schemas() -> Iterator[str]:
    yield "# JSON schemas\n"
    yield "`mltswitch schema NAME` prints the JSON Schema of a document; these are the same files.\n"
    for name, model in DOCUMENTS.items():
        text = (model.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        yield f"- [{name}]({name}.schema.json): {text}"


def public_names() -> Iterator[tuple[str, str]]:
    """Module and name of everything that users import."""
    for module, names in PUBLIC.items():
        for name in names or sorted(import_module(module).__all__):
            yield module, name


def _python() -> Iterator[str]:
    yield "# Python\n"
    yield "These are the names that users import. What is not listed here may change without notice.\n"
    title = ""
    for module, name in public_names():
        if module != title:
            title = module
            yield f"## {module}\n"
        yield f"::: {module}.{name}\n"


def linked(page: str, markdown: str) -> list[str]:
    """What a page links to outside docs/, as paths in the repository."""
    targets = (_target(page, found[1]) for part in _prose(markdown) for found in _LINK.finditer(part))
    return [target for target in targets if not target.startswith("docs/") and target != "docs"]


def with_site_links(markdown: str, origin: str, place: str) -> str:
    """The text with its links as the site has them.

    Args:
        markdown: The text of a page.
        origin: Where it stands, from docs/.
        place: Where the site has it.
    """

    def moved(found: re.Match[str]) -> str:
        target = _target(origin, found[1])
        inside = target.removeprefix("docs/") if target.startswith("docs/") else site_path(target)
        return posixpath.relpath(inside, posixpath.dirname(place) or ".") + (found[2] or "")

    return "".join(
        part if part.startswith("```") else _LINK.sub(moved, part) for part in _FENCE.split(markdown)
    )


def _prose(markdown: str) -> list[str]:
    return [part for part in _FENCE.split(markdown) if not part.startswith("```")]


def _target(page: str, link: str) -> str:
    """The path in the repository of what a page below docs/ links to."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def site_path(name: str) -> str:
    """Where the site has a file or a folder of the repository."""
    return f"repository/{name}.md"


def repository_page(name: str) -> str:
    """A file or a folder of the repository as a page; a missing one fails the build."""
    path = ROOT / name
    if name.endswith(".md") and path.is_file():
        return path.read_text(encoding="utf-8")
    inner = (
        [path]
        if path.is_file()
        else sorted(file for file in path.rglob("*.*") if file.is_file() and ".lab" not in file.parts)
    )
    if not inner:
        raise PluginError(f"{name}: a page links to it, and it is not there")
    return f"# {name}\n\n" + "\n".join(_fenced(file) for file in inner)


def _fenced(file: Path) -> str:
    language = _LANGUAGES.get(file.suffix, "text")
    return f"`{file.relative_to(ROOT)}`\n\n````{language}\n{file.read_text(encoding='utf-8')}````\n"
