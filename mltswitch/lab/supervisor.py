"""The daemon of one lab: listens for its switches and runs its emulators until it is told to end."""

import asyncio
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

from mltswitch.errors import MltswitchError
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import end_with_parent
from mltswitch.lab.relay import RelayServer
from mltswitch.lab.state import Emulator, LabState, read_state

_log: Final = logging.getLogger(__name__)


def emulator_command(paths: LabPaths, emulator: Emulator) -> list[str]:
    """Command line of one emulator."""
    return [
        *(sys.executable, "-P", "-m", "switchsim"),
        *("--kind", emulator.kind),
        *("--hardware", emulator.hardware),
        *(word for each in emulator.neighbours for word in ("--neighbour", *each)),
        *("--name", emulator.name),
        *("--ports", str(emulator.ports)),
        *("--listen", f"{emulator.address}:{emulator.port}"),
        *("--host-key", str(paths.host_keys / emulator.name)),
        *("--authorized-keys", str(paths.authorized_keys)),
    ]


def main(arguments: list[str]) -> int:
    """Serve the lab of one state directory; returns an exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    paths = LabPaths(Path(arguments[0]))
    try:
        state = read_state(paths)
        if state is None:
            _log.error("no lab is recorded in %s", paths.root)
            return 2
        asyncio.run(_serve(paths, state))
    except MltswitchError as error:
        _log.error("%s", error)
        return error.exit_code
    return 0


async def _serve(paths: LabPaths, state: LabState) -> None:
    children = [_start_emulator(paths, emulator) for emulator in state.emulators]
    try:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        for relay in state.relays:
            await RelayServer(relay).start()
        _log.info("%d relays, %d emulators", len(state.relays), len(children))
        watchers = [
            asyncio.create_task(asyncio.to_thread(_watch, emulator.name, child))
            for emulator, child in zip(state.emulators, children, strict=True)
        ]
        await stop.wait()
    finally:
        for child in children:
            child.terminate()
    await asyncio.gather(*watchers)


def _start_emulator(paths: LabPaths, emulator: Emulator) -> subprocess.Popen[bytes]:
    with (paths.logs / f"{emulator.name}.log").open("ab") as log:
        return _start_child(emulator_command(paths, emulator), log)


def _start_child(argv: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=end_with_parent,  # noqa: PLW1509  (no thread runs yet, and one system call is made)
    )


def _watch(name: str, child: subprocess.Popen[bytes]) -> None:
    _log.info("emulator %s ended with %d", name, child.wait())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
