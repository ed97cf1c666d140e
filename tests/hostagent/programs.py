"""Programs of the documentation, run as they stand."""

import subprocess
import sys
from pathlib import Path


def printed_by(program: str, folder: Path, *, loopback: str, patience_seconds: float) -> str:
    """What it prints; it must end well, and complain of nothing. `loopback`: addresses of one's own."""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.", loopback)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience_seconds,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
