"""The other tests of compiled passes once more, where the compiler watches each access to memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mltswitch.hostagent import native
from tests.hostagent.native import sanitized
from tests.hostagent.native.passes import needs_passes

TESTS = ("test_passes.py", "test_reading.py", "test_sending.py", "test_bounds.py")
ROOT = Path(__file__).parents[3]
OVERRUN = "char overrun(void) { volatile char *volatile memory = __builtin_malloc(8); return memory[8]; }"
PATIENCE_SECONDS = 300.0
DETECTED = "AddressSanitizer: heap-buffer-overflow"


def built(target: Path, *sources: Path) -> subprocess.CompletedProcess[str]:
    options = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared", "-fPIC")
    return subprocess.run(
        ["cc", *options, "-o", target, *sources], check=False, capture_output=True, text=True
    )


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Another interpreter, with the compiler's run-time library."""
    command = ["cc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    environment = kept | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # each object by itself
        sanitized.FOLDER: str(folder),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=PATIENCE_SECONDS,
    )


def require_sanitizers(folder: Path) -> None:
    """Skips unless they find what is wrong here."""
    source, target = folder / "overrun.c", folder / "overrun.so"
    source.write_text(OVERRUN, encoding="ascii")
    compiled = built(target, source)
    if compiled.returncode:
        pytest.skip(f"the compiler has no sanitizers: {compiled.stderr[-200:]}")
    found = run(folder, "-c", f"import ctypes; ctypes.CDLL({str(target)!r}).overrun()")
    if DETECTED not in found.stderr:
        pytest.skip(f"the sanitizers' library does not work in this interpreter: {found.stderr[-200:]}")


@needs_passes
def test_no_access_is_out_of_bounds_or_undefined(tmp_path: Path) -> None:
    require_sanitizers(tmp_path)
    sources = sorted(Path(native.__file__).parent.glob("*.c"))
    compiled = built(tmp_path / f"{native.NAME}.so", *sources)
    assert not compiled.returncode, compiled.stderr
    found = run(
        tmp_path,
        *("-m", "pytest", "-q", "-p", sanitized.__name__, "-p", "no:cacheprovider", "--capture=sys"),
        f"--hypothesis-profile={sanitized.PROFILE}",
        *("-k", "not unused"),  # what is not loaded
        *(str(Path(__file__).with_name(name)) for name in TESTS),
    )
    assert not found.returncode, f"{found.stdout}\n{found.stderr}"
