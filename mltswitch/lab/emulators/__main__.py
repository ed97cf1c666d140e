"""Run one emulator in the foreground until SIGTERM or SIGINT: `python -m mltswitch.lab.emulators …`."""

import argparse
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.lab.emulators import (
    KINDS,
    EmulatorServer,
    load_authorized_keys,
    load_host_key,
)
from mltswitch.lab.emulators.sonic_defaults import BOXES

TURN_SECONDS: Final = 0.5
"""Of waiting: a signal just before a wait begins does not end it, and is heard after it."""
_MODELS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "cumulus": {name: {"model": f"M{name.upper()}"} for name in ("sn2100", "sn2700", "sn3700")},
    "eos": {
        "trident2": {"model": "DCS-7050QX-32-F", "queue_word": "tx-queue"},
        "trident3": {"model": "DCS-7050CX3-32S-R"},
        "tomahawk": {"model": "DCS-7060CX-32S-F"},
        "tomahawk2": {"model": "DCS-7260CX3-64-F"},
        "tomahawk3": {"model": "DCS-7060DX4-32-F"},
    },
    "icos": {"n4000": {"model": "N4032F"}, "n3000": {"model": "N3048"}},
    "onyx": {"sn2100": {"model": "MSN2100-CB2F"}, "sn2700": {"model": "MSN2700-CS2F"}},
    "sonic": {name: {"box": name} for name in BOXES},
}
"""Kind → hardware as a fabric file names it → how the box is built that has it."""


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mltswitch.lab.emulators", description=__doc__)
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
        raise UserInputError(f"{arguments.listen!r} is no address", where="--listen", expected="ADDRESS:PORT")
    kind = arguments.kind
    given: dict[str, str] = {}
    if arguments.hardware and kind in _MODELS:
        if arguments.hardware not in _MODELS[kind]:
            names = ", ".join(_MODELS[kind])
            raise UserInputError(
                f"{kind} has no {arguments.hardware}", where="--hardware", expected=f"one of {names}"
            )
        given |= _MODELS[kind][arguments.hardware]
    if arguments.release is not None:
        if kind not in {"sonic", "eos"}:
            raise UserInputError(f"{kind} has one release only", where="--release")
        given["release"] = arguments.release
    try:
        device = KINDS[kind](arguments.name, arguments.ports, **given)
        device.neighbours = {port: (switch, name) for port, switch, name in arguments.neighbour}
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
            while not finished.wait(TURN_SECONDS):
                pass
    except MltswitchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
