import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import pytest

from mltswitch.queueing import jit


def test_without_a_folder_for_the_cache_it_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere_to_write(**options: Any) -> Callable[..., Any]:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)  # type: ignore[no-any-return]

    monkeypatch.setattr(jit, "numba", SimpleNamespace(njit=nowhere_to_write))

    def double(value: int) -> int:
        return 2 * value

    assert jit.jit(double)(21) == 42


SOURCES = {
    "callee.py": "from mltswitch.queueing.jit import jit\n@jit\ndef inner(x):\n    return x + {}\n",
    "caller.py": (
        "from mltswitch.queueing import jit as module\n"
        "from pathlib import Path\n"
        "module._room_of = lambda name: Path(__file__).parent\n"
        "from callee import inner\n"
        "@module.jit\ndef outer(x):\n    return inner(x)\n"
        "print(outer(1), sum(outer.stats.cache_hits.values()))\n"
    ),
}


def test_machine_code_is_kept_until_a_source_of_the_room_changes(tmp_path: Path) -> None:
    """numba itself would go on with the old callee, for the caller's file has not changed."""

    def run(added: int) -> list[str]:
        for name, text in SOURCES.items():
            (tmp_path / name).write_text(text.format(added) if name == "callee.py" else text)
        call = [sys.executable, str(tmp_path / "caller.py")]
        said = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
        return said.stdout.split()

    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(Path.cwd())}
    assert run(1) == ["2", "0"]
    assert run(1) == ["2", "1"]
    assert run(5) == ["6", "0"]
