"""`make pictures`: photographs a plan's report for docs/report.md, by a Chromium that reaches no network."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = ROOT / "docs" / "pictures" / "report.png"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
WINDOW: Final = "1100,760"
PATIENCE_SECONDS: Final = 120.0


def main() -> int:
    """Write the picture; the exit code."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        wanted = ", ".join(BROWSERS)
        print(f"pictures: no Chromium is installed (expected one of {wanted})", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="mltswitch-pictures-") as name:
        folder = Path(name)
        report, picture = folder / "report.html", folder / "report.png"
        fabric = ROOT / "inventories" / "lab" / "fabric.yaml"
        plan = [sys.executable, "-m", "mltswitch", "plan", "--profile", "resnet50", "--fabric", str(fabric)]
        photograph = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=8000",
            f"--window-size={WINDOW}",
            f"--user-data-dir={folder / 'profile'}",
            f"--screenshot={picture}",
            report.as_uri(),
        ]
        try:
            for command in ([*plan, "--report", str(report)], photograph):
                subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"pictures: {Path(error.cmd[0]).name} failed: {error.stderr!r}", file=sys.stderr)
            return 1
        shutil.copyfile(picture, PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} B")
    return 0


if __name__ == "__main__":
    sys.exit(main())
