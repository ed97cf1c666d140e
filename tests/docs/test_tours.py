"""The three tours of docs/: every command of theirs runs and prints what the page says."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, missing, run_page

MOST_LINES = 120
OURS = f"127.{2 + os.getpid() % 250}.{os.getpid() // 250 % 256}."
"""Other runs of the tests on this machine have other addresses of loopback."""
TOURS = [
    pytest.param("start-network", ()),
    pytest.param("start-training", ("torch", "sklearn"), marks=pytest.mark.torch),
    pytest.param("start-research", ("numba",)),
]


@pytest.mark.parametrize(("name", "needs"), TOURS)
def test_the_tour_runs(name: str, needs: tuple[str, ...], tmp_path: Path) -> None:
    for package in needs:
        pytest.importorskip(package)
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) < MOST_LINES
    try:
        run_page(page, tmp_path, {"127.90.0.": OURS})
    finally:
        for file in tmp_path.glob("*.pid"):  # a page that failed has not ended its switches
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)


def test_what_is_not_printed_is_seen() -> None:
    block = "true\n#>  gradient-0 …\n#> 6 ok\n"
    assert missing(block, " gradient-0  34\n6 ok\n") == []
    assert missing(block, "gradient-0  34\n16 ok\n") == [r"\ gradient\-0\ .+", r"6\ ok"]
