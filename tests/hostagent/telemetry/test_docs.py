"""The page says what the code does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostagent.telemetry import schema

PAGE = schema.PAGE.read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_tables_are_those_of_the_code() -> None:
    assert schema.written(PAGE) == PAGE, "python -m tests.hostagent.telemetry.schema renews them"


@pytest.mark.parametrize(
    ("program", "printed"),
    list(zip(PROGRAMS, ["agent_ended", "mltswitch_agent_transfers_total"], strict=True)),
)
def test_programs_run_as_they_stand(program: str, printed: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(schema.PAGE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert printed in done.stdout, done.stderr
