"""docs/first-job.md as a newcomer follows it.

What the page does not show is not done, beyond PATH, the place of the clone, and that the lab goes down.
"""

from pathlib import Path

import pytest

from mltswitch.lab import Lab
from tests.docs.pages import ROOT, blocks_of, run_page
from tests.lab.conftest import SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.torch]

PAGE = (ROOT / "docs" / "first-job.md").read_text(encoding="utf-8")
MOST_LINES = 120


def test_the_page_runs(session_lab: SharedLab, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    assert len(PAGE.splitlines()) < MOST_LINES
    assert len(blocks_of(PAGE)) == 6
    session_lab.down()  # a machine has one lab, and the page brings up its own
    try:
        run_page(PAGE, tmp_path, {"~/mltswitch": str(ROOT)})
    finally:
        Lab(tmp_path / "rack" / ".lab").down(lambda _: None)
