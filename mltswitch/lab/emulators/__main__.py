"""Run one emulator in the foreground until SIGTERM or SIGINT: `python -m mltswitch.lab.emulators …`."""

import argparse
import signal
import sys
import threading
from pathlib import Path

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.lab.emulators import (
    KINDS,
    EmulatorServer,
    SonicDevice,
    load_authorized_keys,
    load_host_key,
)


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mltswitch.lab.emulators", description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), required=True)
    parser.add_argument("--name", required=True, help="host name, as in the prompt")
    parser.add_argument("--ports", type=int, default=16, help="number of Ethernet ports (default 16)")
    parser.add_argument(
        "--release", help="of its OS, where the emulator knows several: sonic (default 202511)"
    )
    parser.add_argument("--listen", required=True, metavar="ADDRESS:PORT", help="port 0 takes a free one")
    parser.add_argument("--host-key", type=Path, required=True, help="OpenSSH private key of the switch")
    parser.add_argument("--authorized-keys", type=Path, required=True, help="public keys that may log in")
    parser.add_argument("--username", default="admin", help="the one user (default admin)")
    return parser.parse_args(words)


def _server(arguments: argparse.Namespace) -> EmulatorServer:
    address, _, port = arguments.listen.rpartition(":")
    if not (address and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UserInputError(f"{arguments.listen!r} is no address", where="--listen", expected="ADDRESS:PORT")
    try:
        if arguments.release is None:
            device = KINDS[arguments.kind](arguments.name, arguments.ports)
        elif arguments.kind == "sonic":
            device = SonicDevice(arguments.name, arguments.ports, release=arguments.release)
        else:
            raise UserInputError(f"{arguments.kind} has one release only", where="--release")
    except ValueError as error:
        raise UserInputError(str(error), where="--ports, --release") from None
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
            finished.wait()
    except MltswitchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
