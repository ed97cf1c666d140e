"""One host agent of a benchmark, through the public interface; benchmarks.agent_ends starts it.

    python -m benchmarks.agent_peer SETTINGS

SETTINGS are JSON, those of benchmarks.agent_ends. It prints "ready" when it listens and "connected" when
all its peers are there, and then obeys lines of JSON:

{"size_bytes", "round", "loss_bound", "senders"} to the receiver, answered by "posted" and then
{"completed_ns", "missing_share"}, and with "at_ns" to a sender, answered by {}: one tensor from each sender.

{"op": "prepare", "size_bytes", "in_flight"}: so much memory is made and touched, answered by {}; then no end
waits for the other when the clock has started.
{"op": "stream", "size_bytes", "in_flight", "loss_bound", "count" or "until_ns"}: tensors one after the
other, so many on their way, answered by what became of them. Times are of CLOCK_MONOTONIC.
"""

import json
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.agent_ends import RECEIVER, Settings, sender_name
from benchmarks.agent_incast_tcp import wait_until
from benchmarks.agent_port import Ended, Port, open_port
from mltswitch.errors import MachineError, MltswitchError

PATIENCE_SECONDS: Final = 50.0
POLL_SECONDS: Final = 0.2
SAMPLE_SECONDS: Final = 0.002
SHOWN_PLACES: Final = 25


def cpu_seconds() -> float:
    """User and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def random_tensor(size_bytes: int, seed: int) -> NDArray[np.float32]:
    """Like gradients: normally distributed."""
    return np.random.default_rng(seed).standard_normal(size_bytes // 4, dtype=np.float32)


class Peer:
    """Obeys the benchmark."""

    def __init__(self, port: Port, settings: Settings) -> None:
        self._port = port
        self._is_receiver = settings.name == RECEIVER
        self._names = [sender_name(n) for n in range(settings.senders)] if self._is_receiver else [RECEIVER]
        self._profile_folder = settings.profile
        self._tensors: dict[tuple[str, int, int], NDArray[np.float32]] = {}
        self._rounds: dict[str, int] = {}

    def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Raises AgentError."""
        if command.get("op") == "prepare":
            self._prepare(command)
            return {}
        if command.get("op") == "stream":
            with profiled(self._profile_folder, "receive" if self._is_receiver else "send"):
                return self._stream(command)
        if self._is_receiver:
            return self._gather(command)
        wait_until(command["at_ns"])
        self._port.send(RECEIVER, 0, self._next_round(RECEIVER), self._tensor(RECEIVER, 0, command))
        self._wait()
        return {}

    def _gather(self, command: dict[str, Any]) -> dict[str, Any]:
        names = [sender_name(number) for number in command["senders"]]
        for name in names:
            buffer = self._tensor(name, 0, command)
            self._port.receive(name, 0, self._next_round(name), buffer, command["loss_bound"])
        print("posted", flush=True)
        ended = {entry.peer: entry for entry in (self._wait() for _ in names)}
        return {
            "completed_ns": [ended[name].completed_ns for name in names],
            "missing_share": [ended[name].missing_share for name in names],
        }

    def _stream(self, command: dict[str, Any]) -> dict[str, Any]:
        """Until so many tensors of each peer have ended, or until an instant."""
        self._prepare(command)
        cpu, started = cpu_seconds(), time.monotonic_ns()
        left = dict.fromkeys(self._names, command.get("count", sys.maxsize))
        until_ns = command.get("until_ns", started + int(PATIENCE_SECONDS * 1e9))
        for slot in range(command["in_flight"]):
            for name in self._names:
                self._post(name, slot, command, left)
        ended: list[Ended] = []
        expected = sum(left.values()) + len(self._names) * command["in_flight"] if "count" in command else 0
        while time.monotonic_ns() < until_ns and not (expected and len(ended) == expected):
            entry = self._port.ended(POLL_SECONDS)
            if entry is not None:
                ended.append(entry)
                self._post(entry.peer, entry.slot, command, left)
        if expected and len(ended) < expected:
            raise MachineError(f"{len(ended)} of {expected} tensors have arrived", where=self._names[0])
        seconds = (time.monotonic_ns() - started) / 1e9
        return answer(ended, command["size_bytes"], seconds, cpu_seconds() - cpu)

    def _prepare(self, command: dict[str, Any]) -> None:
        """Memory is touched before the clock starts."""
        for name in self._names:
            for slot in range(command["in_flight"]):
                self._tensor(name, slot, command)

    def _post(self, name: str, slot: int, command: dict[str, Any], left: dict[str, int]) -> None:
        if left[name] == 0:
            return
        left[name] -= 1
        tensor, round_number = self._tensor(name, slot, command), self._next_round(name)
        if self._is_receiver:
            self._port.receive(name, slot, round_number, tensor, command["loss_bound"])
        else:
            self._port.send(name, slot, round_number, tensor)

    def _wait(self) -> Ended:
        entry = self._port.ended(PATIENCE_SECONDS)
        if entry is None:
            raise MachineError(f"nothing arrived for {PATIENCE_SECONDS:g} s", where=self._names[0])
        return entry

    def _next_round(self, name: str) -> int:
        self._rounds[name] = self._rounds.get(name, 0) + 1
        return self._rounds[name]

    def _tensor(self, name: str, slot: int, command: dict[str, Any]) -> NDArray[np.float32]:
        key = name, slot, command["size_bytes"]
        if key not in self._tensors:
            self._tensors[key] = random_tensor(command["size_bytes"], seed=slot)
        return self._tensors[key]


def answer(ended: Sequence[Ended], size_bytes: int, seconds: float, cpu: float) -> dict[str, Any]:
    """What became of a stream; without transfers there are no means."""
    sent = sum(entry.packets_sent for entry in ended)
    return {
        "bytes": size_bytes * len(ended),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "lost_share": fmean(entry.missing_share for entry in ended) if ended else 0.0,
        "resent_share": sum(entry.packets_resent for entry in ended) / sent if sent else 0.0,
        "completion_seconds": median(entry.seconds for entry in ended) if ended else 0.0,
        "completed_ns": [entry.completed_ns for entry in ended],
    }


@contextmanager
def profiled(folder: str, name: str) -> Iterator[None]:
    """Where each thread is every few milliseconds of processor time, into a file of the folder, if any.

    Unlike a tracing profiler it does not make short functions look long. A call that keeps the
    interpreter's lock is seen when it returns, at the line that made it.
    """
    if not folder:
        yield
        return
    own, seen = threading.get_ident(), Counter[str]()

    def look(*_: object) -> None:
        for thread, frame in sys._current_frames().items():
            if thread != own:
                code = frame.f_code
                seen[f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_qualname}"] += 1

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [f"{count / seen.total():6.1%}  {place}" for place, count in seen.most_common(SHOWN_PLACES)]
        Path(folder, f"{name}.txt").write_text("\n".join([f"{name}:", *lines]) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Open the agent, say so, obey until the input ends."""
    settings = Settings(**json.loads(arguments[0]))
    with open_port(settings) as port:
        peer = Peer(port, settings)
        print("connected", flush=True)
        for line in sys.stdin:
            print(json.dumps(peer.obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MltswitchError as problem:
        sys.exit(str(problem))
