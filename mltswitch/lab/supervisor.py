"""The daemon of one lab: listens for its switches and runs its emulators until it is told to end."""

import asyncio
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from mltswitch.errors import MltswitchError
from mltswitch.lab.layout import Layout
from mltswitch.lab.model import DeviceAddress
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import end_with_parent
from mltswitch.lab.relay import RelayServer, relays_of
from mltswitch.lab.state import read_state
from mltswitch.plan import Switch, trailing_number
from switchsim import KINDS

_log: Final = logging.getLogger(__name__)


def emulator_command(paths: LabPaths, switch: Switch, place: DeviceAddress) -> list[str]:
    """Command line of the emulator that stands for a switch of the fabric."""
    return [
        *(sys.executable, "-P", "-m", "switchsim"),
        *("--kind", switch.platform),
        *("--hardware", switch.hardware or ""),
        *(word for port in switch.ports for word in ("--neighbour", port.name, port.peer, port.peer_port)),
        *("--name", switch.name),
        *("--ports", str(port_count(switch))),
        *("--listen", f"{place.address}:{place.port}"),
        *("--host-key", str(paths.host_keys / switch.name)),
        *("--authorized-keys", str(paths.authorized_keys)),
    ]


def port_count(switch: Switch) -> int:
    """How many ports an emulated switch has: the usual number, or what the fabric's port names need."""
    kind = KINDS[switch.platform]
    highest = max((trailing_number(port.name) or 0 for port in switch.ports), default=0)
    needed = highest // kind.lanes_per_port + 1 if kind.lanes_per_port > 1 else highest
    return max(kind.usual_ports, needed)


def main(arguments: list[str]) -> int:
    """Serve the lab of the state directory in `arguments` until told to end; returns an exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    paths = LabPaths(Path(arguments[0]))
    try:
        state = read_state(paths)
        if state is None:
            _log.error("no lab is recorded in %s", paths.root)
            return 2
        asyncio.run(_serve(paths, state.layout))
    except MltswitchError as error:
        _log.error("%s", error)
        return error.exit_code
    return 0


async def _serve(paths: LabPaths, layout: Layout) -> None:
    children = {
        switch.name: _start_emulator(paths, switch, place)
        for switch, place in layout.reachable(layout.emulators)
    }
    try:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        relays = [*relays_of(layout)]
        for relay in relays:
            await RelayServer(relay).start()
        _log.info("%d relays, %d emulators", len(relays), len(children))
        watchers = [
            asyncio.create_task(asyncio.to_thread(_watch, name, child)) for name, child in children.items()
        ]
        await stop.wait()
    finally:
        for child in children.values():
            child.terminate()
    await asyncio.gather(*watchers)


def _start_emulator(paths: LabPaths, switch: Switch, place: DeviceAddress) -> subprocess.Popen[bytes]:
    with (paths.logs / f"{switch.name}.log").open("ab") as log:
        return subprocess.Popen(
            emulator_command(paths, switch, place),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=end_with_parent,  # noqa: PLW1509  (no thread runs yet, and one system call is made)
        )


def _watch(name: str, child: subprocess.Popen[bytes]) -> None:
    _log.info("emulator %s ended with %d", name, child.wait())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
