"""Runs a page of docs/ as a newcomer follows it: each block in turn, and what the page says that it prints.

A line of a block that begins with `#> ` must be among what the block prints; … in it stands for anything.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK_SECONDS = 600.0
EXPECTED = "#> "


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def expected(block: str) -> list[str]:
    """What must be among the lines that a block prints, as regular expressions."""
    lines = [line.removeprefix(EXPECTED) for line in block.splitlines() if line.startswith(EXPECTED)]
    return [re.escape(line).replace("…", ".+") for line in lines]


def missing(block: str, printed: str) -> list[str]:
    lines = printed.splitlines()
    return [line for line in expected(block) if not any(re.fullmatch(line, each.rstrip()) for each in lines)]


def run_page(page: str, folder: Path, replaced: Mapping[str, str]) -> None:
    """Run all blocks of a page, which must be shell, in one folder; each must print what it says.

    Args:
        page: Its text.
        folder: Where the reader stands.
        replaced: What this machine has in the place of some words of the page.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for language, shown in blocks_of(page):
        assert language == "sh"
        block = shown
        for word, instead in replaced.items():
            block = block.replace(word, instead)
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_SECONDS,
            check=False,
        )
        # Lines of configurations are many, and no part of what went wrong.
        told = [line for line in ended.stdout.splitlines() if not line.startswith("    ")]
        assert ended.returncode == 0, "\n".join([block, *told])
        assert missing(block, ended.stdout) == [], ended.stdout
        assert expected(block), block
