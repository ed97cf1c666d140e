"""Manual pages as `make man` writes them: one a command, with its options and examples."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mltswitch.cli import cli
from tests.cli.test_cli import commands

WARNINGS = ("-wescape", "-winput", "-wmac", "-wsyntax")
SCRIPT = Path(__file__).parents[2] / "scripts" / "man.py"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("click_man", reason="click-man is not installed")
    folder = tmp_path_factory.mktemp("pages") / "man"
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return folder


def test_every_command_has_a_page(pages: Path) -> None:
    named = {"-".join(("mltswitch", *words)) for words, _ in commands(cli)}
    assert {page.stem for page in pages.iterdir()} == {"mltswitch", *named}


def test_a_page_has_what_help_has(pages: Path) -> None:
    page = (pages / "mltswitch-push.1").read_text(encoding="utf-8").replace("\\-", "-")
    assert '.TH "MLTSWITCH PUSH" "1"' in page
    assert "Make the switches run PLAN" in page
    assert "--max-fail-percentage" in page
    assert "[env var: MLTSWITCH_LIMIT]" in page
    assert "\n  mltswitch push plan.yaml -i inventories/lab --check --diff\n" in page
    assert "agent" in (pages / "mltswitch.1").read_text(encoding="utf-8")


def test_pages_are_manual_pages(pages: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for page in pages.iterdir():
        command = ["groff", "-man", "-Kutf8", "-Tutf8", *WARNINGS, str(page)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (made.returncode, made.stderr) == (0, ""), page.name
