"""The persistent WAN lab: a process that holds the sites, draws rates anew and answers on a socket.

There is one on a machine, below /run/mltswitch-wan, and its namespaces are `mltswitch-wan-SITE`.
"""

import json
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from mltswitch.errors import MachineError, MltswitchError, UserInputError
from mltswitch.hostagent.telemetry.links import LinkWatch
from mltswitch.lab.namespaces import NAMESPACE_DIRECTORY, NamespaceHandle, process_ids, remove_namespace
from mltswitch.lab.processes import carries, end, end_with_parent, kill_and_wait, read_record, start_recorded
from mltswitch.lab.programs import need, need_root
from mltswitch.lab.star import INTERFACE, SWITCH
from mltswitch.lab.wan import WanNetwork, agent_fields, running_wan
from mltswitch.overlay.wan import Wan
from mltswitch.units import BITS_PER_BYTE

FOLDER: Final = Path("/run/mltswitch-wan")
PREFIX: Final = "mltswitch-wan"
STARTING_SECONDS: Final = 60.0
ENDING_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 10.0
TURN_SECONDS: Final = 0.5
MASTER_PORT: Final = 29_500
AGENT_PORT: Final = 20_800
OVERLAY: Final = "overlay.json"
"""Name of the file with the network as it was when the lab was started."""
TRACES: Final = "traces"
"""Name of the folder in which a job's agents write traces of what they know of links."""
MOST_REQUEST_BYTES: Final = 1 << 16
CHUNK_BYTES: Final = 1 << 16
SIGNALLED: Final = 128
GRACE_SECONDS: Final = 5.0
MARK: Final = "MLTSWITCH_WAN_RUN"
"""Environment variable by which all processes of a run are found, whatever sessions they start."""


class WanLab:
    """Control of this machine's WAN lab by other processes; every method raises MltswitchError."""

    def __init__(self, folder: Path = FOLDER, prefix: str = PREFIX) -> None:
        self._folder, self._prefix = folder, prefix

    @property
    def is_up(self) -> bool:
        """Whether the lab's process runs; raises MachineError for a user who is not root."""
        need_root()
        identity = read_record(self._folder / "process")
        return identity is not None and identity.alive

    def up(self, wan: Wan, *, is_changing: bool) -> None:
        """Build the lab and return when its sites exist."""
        need("ip", "tc", "ping", "gcc")
        if self.is_up:
            raise MachineError("is up", where="WAN lab", hint="`mltswitch lab wan down` first")
        self.down()
        self._folder.mkdir(mode=0o700, parents=True)
        (self._folder / TRACES).mkdir()
        try:
            self._start_process(wan, is_changing=is_changing)
        except BaseException:  # also an interrupt
            self.down()
            raise

    def _start_process(self, wan: Wan, *, is_changing: bool) -> None:
        data = {"wan": wan.model_dump(mode="json", by_alias=True), "is_changing": is_changing}
        (self._folder / "lab.json").write_text(json.dumps(data), encoding="utf-8")
        log = self._folder / "log"
        command = [sys.executable, "-P", "-m", "mltswitch.lab.wan_lab", str(self._folder), self._prefix]
        with log.open("ab") as file:
            process = start_recorded(command, self._folder / "process", log=file)
        until = time.monotonic() + STARTING_SECONDS
        while not (self._folder / "socket").exists():
            if process.poll() is not None or time.monotonic() > until:
                words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise MachineError(words[-1] if words else "did not start", where="WAN lab")
            time.sleep(0.05)

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send `status` or `change` to the lab's process and return its answer, or raise its error."""
        if not self.is_up:
            raise MachineError("is not up", where="WAN lab", hint="`mltswitch lab wan up netstorm9`")
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(str(self._folder / "socket"))
                connection.sendall(json.dumps({"do": do, **request}).encode() + b"\n")
                line = connection.makefile().readline()
        except OSError as error:
            raise MachineError(f"does not answer: {error}", where="WAN lab") from None
        answer: dict[str, Any] = json.loads(line or '{"error": "has ended"}')
        if "error" in answer:
            kind = UserInputError if answer.get("is_input") else MachineError
            raise kind(answer["error"], where=answer.get("where") or "WAN lab")
        return answer

    def status(self) -> dict[str, Any]:
        """The links' state now, and what the job with the latest report measured; raises as `ask` does."""
        found, known = self.ask("status"), LinkWatch([self._folder / TRACES]).read()
        links = [] if known is None else known["links"]
        measured = {(link["source"], link["target"]): link for link in links}
        for link in found["links"]:
            told = measured.get((link["source"], link["target"]), {})
            link |= {
                "measured_bps": told.get("measured_bps"),
                "measured_age_seconds": told.get("age_seconds"),
            }
        return found

    def down(self) -> None:
        """Remove all that `up` has made, with the processes on its sites, also after a crash."""
        need_root()
        identity = read_record(self._folder / "process")
        if identity is not None:
            kill_and_wait([each for each in self._processes if each != identity.pid])
            end(identity, grace_seconds=ENDING_SECONDS)
        kill_and_wait(self._processes)
        for place in self._namespaces:
            remove_namespace(place.name, self._prefix)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _namespaces(self) -> list[Path]:
        return [*NAMESPACE_DIRECTORY.glob(f"{self._prefix}-*")]

    @property
    def _processes(self) -> list[int]:
        """On sites; what carries the packets is in a namespace of its own."""
        own = f"{self._prefix}-{SWITCH}"
        return [pid for place in self._namespaces if place.name != own for pid in process_ids(place.name)]

    def run(self, command: Sequence[str], out: IO[str]) -> int:
        """Run a command on every site, each as a rank of one job; a site's output lines begin with its name.

        Returns the first exit status that is not 0, as a shell has it. All started processes end with this
        call, also after an interrupt, SIGTERM, or when the output is no longer read.
        """
        sites = self.ask("status")["sites"]
        names: dict[IO[str], str] = {}
        started: list[subprocess.Popen[str]] = []
        mark = f"{os.getpid()}-{time.monotonic_ns()}"
        before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            for rank, site in enumerate(sites):
                started.append(self._start(command, rank, sites, mark))
                names[started[-1].stdout or sys.stdin] = site["name"]
            _pass_on(names, out, started)
            codes = [process.wait() for process in started]
        finally:
            kill_and_wait([pid for pid in self._processes if carries(pid, "environ", f"{MARK}={mark}")])
            for process in started:
                process.wait()
            for number, handler in before.items():
                signal.signal(number, handler)
        return next((SIGNALLED - code if code < 0 else code for code in codes if code), 0)

    def _start(
        self, command: Sequence[str], rank: int, sites: Sequence[Mapping[str, Any]], mark: str
    ) -> subprocess.Popen[str]:
        site = sites[rank]
        config = self._folder / f"{site['name']}.yaml"
        fields = agent_fields(site["address"], AGENT_PORT, site["fastest_bps"])
        fields["trace"] = {"folder": str(self._folder / TRACES), "events": ["links_measured"]}
        config.write_text(json.dumps(fields), encoding="utf-8")
        environment = {
            "RANK": rank,
            "LOCAL_RANK": 0,
            "WORLD_SIZE": len(sites),
            "MASTER_ADDR": sites[0]["address"],
            "MASTER_PORT": MASTER_PORT,
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "MLTSWITCH_AGENT_CONFIG": config,
            "MLTSWITCH_OVERLAY": self._folder / OVERLAY,
            MARK: mark,
        }
        return subprocess.Popen(
            NamespaceHandle(f"{self._prefix}-{site['name']}").command(command),
            env={**os.environ, **{name: str(value) for name, value in environment.items()}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  (no thread runs, and one system call is made)
        )


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _pass_on(names: Mapping[IO[str], str], out: IO[str], started: Sequence[subprocess.Popen[str]]) -> None:
    """Lines of all, until the last one has closed its output, or a moment longer than all ranks run."""
    selector, rest = selectors.DefaultSelector(), dict.fromkeys(names, b"")
    for each in names:
        selector.register(each, selectors.EVENT_READ)
    until = math.inf
    while rest and time.monotonic() < until:
        if until == math.inf and all(process.poll() is not None for process in started):
            until = time.monotonic() + GRACE_SECONDS  # what they have left behind may go on for ever
        for key, _ in selector.select(TURN_SECONDS):
            file: Any = key.fileobj
            more = os.read(file.fileno(), CHUNK_BYTES)
            *lines, rest[file] = (rest[file] + more).split(b"\n")
            if not more:
                lines += [rest.pop(file)] if rest[file] else []
                rest.pop(file, None)
                selector.unregister(file)
            for line in lines:
                out.write(f"{names[file]}: {line.decode(errors='replace')}\n")
        out.flush()


class _Server:
    """The process's own side."""

    def __init__(self, network: WanNetwork, place: Path) -> None:
        self._network = network
        self._since_seconds = time.monotonic()
        self._listener = socket.socket(socket.AF_UNIX)
        waiting = place.with_suffix(".new")
        self._listener.bind(str(waiting))
        self._listener.listen()
        waiting.rename(place)  # who finds it can connect

    def serve(self, is_over: threading.Event) -> None:
        """Answer until told to end."""
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        while not is_over.is_set():
            self._network.check()
            if not selector.select(TURN_SECONDS):
                continue
            connection, _ = self._listener.accept()
            with connection, suppress(OSError):  # who asks may have gone
                connection.settimeout(ANSWER_SECONDS)
                line = connection.makefile(errors="replace").readline(MOST_REQUEST_BYTES)
                connection.sendall(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: str) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                return {"error": f"{line!r:.40} is no request"}
            if request.pop("do", None) == "change":
                self._network.change(**request)
                return {}
            return self._status()
        except MltswitchError as error:
            is_input = isinstance(error, UserInputError)
            return {"error": error.what, "where": error.where, "is_input": is_input}
        except (ValueError, TypeError, RecursionError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _status(self) -> dict[str, Any]:
        network, now_seconds = self._network, time.monotonic()
        took, self._since_seconds = now_seconds - self._since_seconds, now_seconds
        carried = network.carried()
        fastest = {name: network.wan.most_bps(name) for name in network.wan.nodes}
        links = []
        for link in network.overlay.links:
            fastest[link.source] = max(fastest[link.source], link.rate_bps)
            counts = carried[link.source, link.target]
            links.append(
                {
                    "source": link.source,
                    "target": link.target,
                    "rate_bps": link.rate_bps,
                    "delay_seconds": link.delay_seconds,
                    "loss": link.loss,
                    "carried_bps": counts.size_bytes * BITS_PER_BYTE / took,
                    "dropped": counts.dropped,
                    "lost": counts.lost,
                }
            )
        sites = [
            {"name": name, "address": network.addresses(at)[0], "fastest_bps": fastest[name]}
            for at, name in enumerate(network.wan.nodes)
        ]
        return {"draws": network.draws, "sites": sites, "links": links}


def main(folder: Path, prefix: str) -> int:
    """Run the lab of this folder until a signal comes; returns an exit status."""
    is_over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_over.set())
    data = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    try:
        wan = Wan.model_validate(data["wan"])
        with running_wan(wan, prefix, is_changing=data["is_changing"]) as network:
            overlay = network.overlay.model_dump_json(by_alias=True)
            (folder / OVERLAY).write_text(overlay, encoding="utf-8")
            _Server(network, folder / "socket").serve(is_over)
    except MltswitchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
