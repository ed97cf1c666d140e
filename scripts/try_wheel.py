"""Tries a wheel in an empty environment: it plans, renders, and sends a tensor over loopback.

    python -m scripts.try_wheel dist/mltswitch-0.1.0-….whl
    python -m scripts.try_wheel --offline dist/mltswitch-0.1.0-….whl

The packages that the wheel needs come from the package index, or with --offline from the environment that
runs this.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

PATIENCE_SECONDS: Final = 300.0


def main() -> int:
    """The exit code: 0 where all worked, else that of the step that failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--offline", action="store_true", help="take what it needs from this environment")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mltswitch-wheel-") as name:
        folder = Path(name)
        try:
            install(given.wheel.resolve(), folder / "venv", is_offline=given.offline)
            try_out(folder / "venv" / "bin" / "mltswitch", folder)
        except subprocess.CalledProcessError as error:
            print(f"try_wheel: {' '.join(error.cmd[1:4])} ended with {error.returncode}", file=sys.stderr)
            return error.returncode
        except subprocess.TimeoutExpired as error:
            print(f"try_wheel: {' '.join(error.cmd[1:4])} did not end", file=sys.stderr)
            return 1
    print(f"{given.wheel.name}: plans, renders and sends a tensor")
    return 0


def install(wheel: Path, environment: Path, *, is_offline: bool) -> None:
    """Install the wheel into a new virtual environment."""
    _run([sys.executable, "-m", "venv", str(environment)], environment.parent)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    if not is_offline:
        _run([*pip, f"{wheel}[agent]"], environment.parent)
        return
    _run([*pip, "--no-deps", "--no-index", str(wheel)], environment.parent)
    # A folder that a .pth file names comes behind the environment's own, and its .pth files are not read: a
    # clone that is installed there in place of the wheel is not seen.
    (packages,) = environment.glob("lib/python*/site-packages")
    folders = [sysconfig.get_path("purelib"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    named = [folder for folder in folders if folder and not (Path(folder) / "mltswitch").is_dir()]
    (packages / "borrowed.pth").write_text("".join(f"{folder}\n" for folder in named), encoding="utf-8")


def try_out(program: Path, folder: Path) -> None:
    """Use what was installed as a newcomer does; raises CalledProcessError for a step that fails."""
    command = str(program)
    _run([command, "--version"], folder)
    _run([command, "init", "rack", "--yes", "--name", "rack"], folder)
    planned = [command, "plan", "--profile", "resnet50", "--fabric", "rack/fabric.yaml", "-o", "plan.yaml"]
    _run(planned, folder)
    _run([command, "render", "plan.yaml", "-i", "rack", "-o", "configs"], folder)
    if not list((folder / "configs").rglob("*.tc")):
        raise subprocess.CalledProcessError(1, [command, "render", "wrote", "nothing"])
    address = f"127.{2 + os.getpid() % 250}.{os.getpid() // 250 % 256}.1"  # beside other runs on this machine
    receive = [command, "agent", "recv", "--listen", address, "-o", "copy.npy"]
    with subprocess.Popen(receive, cwd=folder, env=_environment()) as receiver:
        try:
            _run([command, "agent", "send", "--random", "1MB", "--to", f"receiver={address}"], folder)
            if receiver.wait(PATIENCE_SECONDS) != 0:
                raise subprocess.CalledProcessError(receiver.returncode, receive)
        finally:
            receiver.terminate()
    if not (folder / "copy.npy").is_file():
        raise subprocess.CalledProcessError(1, receive)


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, env=_environment(), timeout=PATIENCE_SECONDS, check=True)


def _environment() -> dict[str, str]:
    """Nothing of the clone is on the path of what is tried."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    sys.exit(main())
