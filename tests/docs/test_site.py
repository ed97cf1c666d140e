"""The site of `make docs`: all pages, without a network, and a dead link ends the build."""

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from mltswitch.cli import COMMANDS
from tests.chromium import find_browser
from tests.docs.pages import ROOT

MOST_PICTURE_BYTES = 200_000
BUILD_SECONDS = 600.0
PROGRAM = """
import json, logging, sys
from mkdocs.commands.build import build
from mkdocs.config import load_config

logging.basicConfig(level=logging.WARNING)
config = load_config("mkdocs.yml", **json.loads(sys.argv[1]))
config.plugins.on_startup(command="build", dirty=False)
build(config)
"""


def build(**settings: object) -> "subprocess.CompletedProcess[str]":
    """The site by our mkdocs.yml, with other values for some of its settings."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(settings)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, as `make docs` makes it."""
    folder = tmp_path_factory.mktemp("site")
    ended = build(site_dir=str(folder))
    assert ended.returncode == 0, ended.stderr
    return folder


def test_every_page_is_built_and_none_asks_a_foreign_server(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file(), page
    for command in COMMANDS:
        assert f"mltswitch {command}" in (site / f"reference/commands/{command}.html").read_text()
    assert "MltState" in unescape((site / "reference/python.html").read_text())
    loads = re.compile(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//')
    for file in site.rglob("*.html"):
        assert loads.search(file.read_text(encoding="utf-8")) is None, file
    assert (site / "search/search_index.js").is_file()


def test_the_search_works_from_a_disk_without_a_network(site: Path, tmp_path: Path) -> None:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    command = [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=20000",
        f"--user-data-dir={tmp_path}",
        "--dump-dom",
        f"{(site / 'index.html').as_uri()}?q=threshold",
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=True).stdout
    matches = re.search(r'class="md-search-result__meta">(\d+) matching documents', shown)
    assert matches is not None
    assert int(matches[1]) > 10


@pytest.mark.parametrize(
    ("links", "complaints"),
    [
        (("plan.md#one", "../mltswitch/units.py", "../docs/plan.md"), ()),
        (("gone.md", "plan.md#two"), ("'gone.md'", "'plan.md#two'")),
    ],
)
def test_a_dead_link_ends_the_build(
    links: tuple[str, ...], complaints: tuple[str, ...], tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    text = "\n\n".join(("# Here", *(f"[there]({link})" for link in links)))
    (docs / "index.md").write_text(text, encoding="utf-8")
    (docs / "plan.md").write_text("# Plan\n\n## One\n", encoding="utf-8")
    nav = ["index.md", "plan.md", {"Reference": []}]
    ended = build(docs_dir=str(docs), site_dir=str(tmp_path / "site"), nav=nav, plugins=["search"])
    assert (ended.returncode != 0) == bool(complaints), ended.stderr
    assert [each for each in complaints if each not in ended.stderr] == []


def test_a_link_to_a_missing_file_of_the_repository_is_named() -> None:
    pytest.importorskip("mkdocs")
    from scripts.docs_site import linked, repository_page

    (name,) = linked("agent.md", "[x](plan.md), [y](../mltswitch/gone.py)\n```\n[z](../no/link)\n```\n")
    with pytest.raises(Exception, match=r"mltswitch/gone\.py: a page links to it, and it is not there"):
        repository_page(name)


def test_pictures_are_small() -> None:
    files = [*(ROOT / "docs" / "pictures").iterdir(), *(ROOT / "docs" / "assets").iterdir()]
    assert sum(file.stat().st_size for file in files) < MOST_PICTURE_BYTES
