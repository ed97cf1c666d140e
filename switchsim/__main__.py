"""Run one emulator in the foreground until SIGTERM or SIGINT: `python -m switchsim …`."""

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from switchsim import (
    KINDS,
    EmulatorServer,
    load_authorized_keys,
    load_host_key,
)
from switchsim.errors import SimulatorError, UsageError

TURN_SECONDS: Final = 0.5
"""Of waiting: a signal just before a wait begins does not end it, and is heard after it."""


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m switchsim", description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), required=True)
    parser.add_argument("--name", required=True, help="host name, as in the prompt")
    parser.add_argument("--ports", type=int, default=16, help="number of Ethernet ports (default 16)")
    parser.add_argument(
        "--release",
        help="of its OS, where the emulator knows several: sonic (default 202511), eos (default 4.31.5M)",
    )
    parser.add_argument("--hardware", default="", help="as a fabric file names it (default: one of the kind)")
    parser.add_argument(
        "--neighbour",
        nargs=3,
        action="append",
        default=[],
        metavar=("PORT", "SWITCH", "ITS-PORT"),
        help="what it hears by LLDP",
    )
    parser.add_argument("--listen", required=True, metavar="ADDRESS:PORT", help="port 0 takes a free one")
    parser.add_argument("--host-key", type=Path, required=True, help="OpenSSH private key of the switch")
    parser.add_argument("--authorized-keys", type=Path, required=True, help="public keys that may log in")
    parser.add_argument("--username", default="admin", help="the one user (default admin)")
    return parser.parse_args(words)


def _server(arguments: argparse.Namespace) -> EmulatorServer:
    address, _, port = arguments.listen.rpartition(":")
    if not (address and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"{arguments.listen!r} is no address", where="--listen", expected="ADDRESS:PORT")
    kind, device_class = arguments.kind, KINDS[arguments.kind]
    given: dict[str, str] = {}
    if arguments.hardware and device_class.boxes:
        if arguments.hardware not in device_class.boxes:
            names = ", ".join(device_class.boxes)
            raise UsageError(
                f"{kind} has no {arguments.hardware}", where="--hardware", expected=f"one of {names}"
            )
        given |= device_class.boxes[arguments.hardware]
    if arguments.release is not None:
        if not device_class.has_releases:
            raise UsageError(f"{kind} has one release only", where="--release")
        given["release"] = arguments.release
    try:
        device = device_class(arguments.name, arguments.ports, **given)
        device.neighbours = {port: (switch, name) for port, switch, name in arguments.neighbour}
    except ValueError as error:
        raise UsageError(str(error), where="--ports, --release") from None
    return EmulatorServer(
        device,
        address.strip("[]"),
        int(port),
        host_key=load_host_key(arguments.host_key),
        authorized_keys=load_authorized_keys(arguments.authorized_keys),
        username=arguments.username,
    )


def main(words: list[str] | None = None) -> int:
    """Exit code 0 after a signal, else that of the error."""
    finished = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: finished.set())
    try:
        with _server(_arguments(words)) as server:
            sys.stdout.write(f"{server.device.name} listens on {server.address}:{server.port}\n")
            sys.stdout.flush()
            while not finished.wait(TURN_SECONDS):
                pass
    except SimulatorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
