"""A stand-in for the program `containerlab`: emulated switches at a topology file's management addresses.

The addresses are put on the loopback interface, for which it has to be root. `deploy` returns when all
listen; `destroy` ends them. It takes the arguments that `verify.sh` gives and no others. Log-in is by the
password that a real image would have, from the environment here.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import paramiko
import yaml

from switchsim import KINDS, EmulatorServer, load_host_key

KIND_OF = {
    "arista_ceos": "eos",
    "sonic-vm": "sonic",
    "nvidia_cumulusvx": "cumulus",
    "dell_sonic": "dell-sonic",
}
USER = {"cumulus": "cumulus"}
SSH_PORT = 22
START_SECONDS = 60.0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="containerlab")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, flag in (("deploy", "--reconfigure"), ("destroy", "--cleanup"), ("serve", "--ready")):
        added = verbs.add_parser(verb)
        added.add_argument(flag, action="store_true", required=True)
        added.add_argument("--topo", type=Path, required=True)
    arguments = parser.parse_args(words)
    lab = arguments.topo.with_suffix(".pid")
    if arguments.verb == "destroy":
        os.kill(int(lab.read_text()), signal.SIGTERM)
        lab.unlink()
    elif arguments.verb == "serve":
        serve(arguments.topo, lab.with_suffix(".ready"))
    else:
        deploy(arguments.topo, lab)
    return 0


def deploy(topo: Path, lab: Path) -> None:
    command = [sys.executable, __file__, "serve", "--ready", "--topo", str(topo)]
    with topo.with_suffix(".log").open("w") as log:
        served = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    lab.write_text(str(served.pid))
    ready = lab.with_suffix(".ready")
    end = time.monotonic() + START_SECONDS
    while not ready.exists():
        if served.poll() is not None or time.monotonic() > end:
            sys.exit(topo.with_suffix(".log").read_text())
        time.sleep(0.05)


def serve(topo: Path, ready: Path) -> None:
    finished = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: finished.set())
    document = yaml.safe_load(topo.read_text())
    file = topo.with_suffix(".key")  # whoever deploys again meets the same switches
    if not file.exists():
        paramiko.RSAKey.generate(2048).write_private_key_file(str(file))
    key = load_host_key(file)
    with ExitStack() as stack:
        for name, node in document["topology"]["nodes"].items():
            if (kind := KIND_OF.get(node["kind"])) is not None:
                assert image(document, node["kind"])
                stack.enter_context(on_loopback(node["mgmt-ipv4"]))
                stack.enter_context(server(name, kind, node["mgmt-ipv4"], key))
        ready.touch()
        while not finished.wait(0.5):
            pass
    ready.unlink()


@contextmanager
def on_loopback(address: str) -> Iterator[None]:
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=True)


def image(document: dict[str, Any], kind: str) -> str:
    """The image's name, with `${VARIABLE:=default}` as containerlab replaces it."""
    text = document["topology"]["kinds"][kind]["image"]
    return re.sub(r"\$\{(\w+):=([^}]*)\}", lambda match: os.environ.get(match[1]) or match[2], text)


def server(name: str, kind: str, address: str, key: paramiko.PKey) -> EmulatorServer:
    return EmulatorServer(
        KINDS[kind](name, 32),
        address,
        SSH_PORT,
        host_key=key,
        username=USER.get(kind, "admin"),
        password=os.environ[f"{kind.replace('-', '_').upper()}_PASSWORD"],
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
