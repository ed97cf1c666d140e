"""docs/first-job.md as a newcomer follows it: each block in turn, and what the page says that it prints.

What the page does not show is not done, beyond PATH, the place of the clone, and that the lab goes down.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mltswitch.lab import Lab
from tests.lab.conftest import SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.torch]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-job.md").read_text(encoding="utf-8")
BLOCK_SECONDS = 600.0
MOST_LINES = 120
EXPECTED = "#> "


def expected(block: str) -> list[str]:
    """What must be among the lines that a block prints, as regular expressions; … stands for anything."""
    lines = [line.removeprefix(EXPECTED) for line in block.splitlines() if line.startswith(EXPECTED)]
    return [re.escape(line).replace("…", ".+") for line in lines]


def missing(block: str, printed: str) -> list[str]:
    lines = printed.splitlines()
    return [line for line in expected(block) if not any(re.fullmatch(line, each.rstrip()) for each in lines)]


def test_what_is_not_printed_is_seen() -> None:
    block = "true\n#>  gradient-0 …\n#> 6 ok\n"
    assert missing(block, " gradient-0  34\n6 ok\n") == []
    assert missing(block, "gradient-0  34\n16 ok\n") == [r"\ gradient\-0\ .+", r"6\ ok"]


def test_the_page_runs(session_lab: SharedLab, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    assert len(PAGE.splitlines()) < MOST_LINES
    session_lab.down()  # a machine has one lab, and the page brings up its own
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks] == ["sh"] * 6
    try:
        for _, block in blocks:
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.replace("~/mltswitch", str(ROOT))],
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=BLOCK_SECONDS,
                check=False,
            )
            told = [
                line for line in ended.stdout.splitlines() if not line.startswith("    ")
            ]  # no config lines
            assert ended.returncode == 0, "\n".join([block, *told])
            assert missing(block, ended.stdout) == [], ended.stdout
            assert expected(block), block
    finally:
        Lab(tmp_path / "rack" / ".lab").down(lambda _: None)
