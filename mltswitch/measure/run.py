"""One run of a probe: a receiver and some senders, each a process on its own host."""

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from mltswitch.errors import MachineError
from mltswitch.measure.receiver import ReceiveTask
from mltswitch.measure.schedule import Schedule
from mltswitch.measure.sender import BurstTask, RampTask, SendReport, SendTask
from mltswitch.plan import Plan
from mltswitch.units import ETHERNET_HEADER_BYTES

START_SECONDS: Final = 0.3
"""From telling the senders when to start to that moment."""
PATIENCE_SECONDS: Final = 60.0
"""Beyond the planned end of a run; then its processes are ended."""

LARGEST_STRETCH: Final = 0.05
LARGEST_LATE_SECONDS: Final = 0.5
LARGEST_REFUSED_SHARE: Final = 0.001
"""Beyond these the offered load was not the one that was asked for."""


@dataclass(frozen=True, slots=True)
class ProbeHost:
    """A host that can run our Python."""

    name: str
    prefix: tuple[str, ...]
    """What runs a command there: `ip netns exec …`, `ssh …`; empty for this machine."""
    addresses: tuple[IPv4Address, ...]
    """Where to reach it, one per path."""

    def command(self, module: str) -> list[str]:
        """Command line of one of our modules there."""
        return [*self.prefix, sys.executable, "-P", "-m", module]


@dataclass(frozen=True, slots=True)
class Received:
    """What each sender sent, and what arrived."""

    records: npt.NDArray[np.void]
    schedules: tuple[Schedule, ...]
    late_seconds: float

    @property
    def sent(self) -> Counter[tuple[int, bool]]:
        """Packets sent, by (class, importance)."""
        count: Counter[tuple[int, bool]] = Counter()
        for schedule in self.schedules:
            count.update(zip(schedule.class_index.tolist(), schedule.is_important.tolist(), strict=True))
        return count

    def sent_seconds(self, class_index: int, *, is_important: bool) -> npt.NDArray[np.float64]:
        """When the packets of this kind were due."""
        return np.concatenate(
            [
                schedule.time_seconds[
                    (schedule.class_index == class_index) & (schedule.is_important == is_important)
                ]
                for schedule in self.schedules
            ]
        )

    def received_seconds(self, records: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
        """When these records' packets had been due at their senders."""
        due = np.zeros(len(records))
        for number, schedule in enumerate(self.schedules):
            mine = records["sender"] == number
            due[mine] = schedule.time_seconds[records["sequence"][mine]]
        return due

    def require_some(self, port: str) -> None:
        """Raise MachineError when nothing at all came through the port."""
        if not len(self.records):
            raise MachineError(
                "nothing arrived", where=port, hint="push the plan first: the alias routes may be missing"
            )


def run(
    plan: Plan,
    receiver: ProbeHost,
    tasks: Mapping[ProbeHost, BurstTask | RampTask],
    seconds: float,
    seed: int,
) -> Received:
    """Start the receiver, then the senders at one moment; returns when all have ended.

    Raises:
        MachineError: a process on a host failed; its last line is in the message.
    """
    run_number = (seed * 2654435761 + time.time_ns()) % 2**32
    with tempfile.TemporaryDirectory(prefix="mltswitch-probe-") as folder:
        output = Path(folder) / "received.npy"
        sends = {
            host: SendTask(
                run=run_number,
                sender=number,
                destinations=receiver.addresses,
                class_dscps=tuple(entry.dscp[0] for entry in plan.classes),
                packet_bytes=plan.port_profiles[0].packet_bytes - ETHERNET_HEADER_BYTES,
                duration_seconds=seconds,
                traffic=traffic,
            )
            for number, (host, traffic) in enumerate(tasks.items())
        }
        schedules = tuple(task.schedule() for task in sends.values())
        listen = ReceiveTask(run=run_number, output=output, maximum_packets=sum(map(len, schedules)) + 1)
        reports = _converse(receiver, listen, sends, seconds)
        _require_on_time(tuple(tasks), reports)
        return Received(np.load(output), schedules, max(report.late_seconds for report in reports))


def _converse(
    receiver: ProbeHost, listen: ReceiveTask, sends: Mapping[ProbeHost, SendTask], seconds: float
) -> list[SendReport]:
    running: list[tuple[ProbeHost, subprocess.Popen[str]]] = []
    try:
        for host, module, task in (
            (receiver, "mltswitch.measure.receiver", listen.model_dump_json()),
            *((host, "mltswitch.measure.sender", send.model_dump_json()) for host, send in sends.items()),
        ):
            process = _start(host, module)
            running.append((host, process))
            _feed(process, task)
        for host, process in running:
            _await_ready(host, process)
        start_ns = time.time_ns() + round(START_SECONDS * 1e9)
        for _, process in running[1:]:
            _feed(process, str(start_ns))
        _feed(running[0][1], str(start_ns + round(seconds * 1e9)))
        limit = START_SECONDS + seconds + PATIENCE_SECONDS
        reports = [_report(host, process, limit) for host, process in running[1:]]
        _require_no_drops(receiver, _finish(receiver, running[0][1], limit))
        return reports
    finally:
        for _, process in running:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _await_ready(host: ProbeHost, process: subprocess.Popen[str]) -> None:
    """Wait for the process's first line; raises MachineError when it ends or stays silent."""
    watchdog = threading.Timer(PATIENCE_SECONDS, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline() if process.stdout else ""
    finally:
        watchdog.cancel()
    if line != "ready\n":
        _finish(host, process, PATIENCE_SECONDS)
        raise MachineError(f"a probe process began with {line[:80]!r}", where=host.name)


def _require_on_time(hosts: tuple[ProbeHost, ...], reports: list[SendReport]) -> None:
    """What a host did not send, or not in time, must not count as the switch's doing."""
    for host, report in zip(hosts, reports, strict=True):
        if report.stretch > LARGEST_STRETCH or report.late_seconds > LARGEST_LATE_SECONDS:
            raise MachineError(
                f"sent up to {report.late_seconds:.1f} s late: this machine is too slow, or too busy",
                where=host.name,
                hint="lower ports.rate in the fabric, or the loads",
            )
        if report.refused > LARGEST_REFUSED_SHARE * report.packets:
            raise MachineError(
                f"its own kernel refused {report.refused} of {report.packets} packets", where=host.name
            )


def _require_no_drops(receiver: ProbeHost, answer: str) -> None:
    dropped = answer.strip().splitlines()[-1] if answer.strip() else "nothing"
    if dropped != "0":
        raise MachineError(
            f"the receiving host itself dropped packets ({dropped})",
            where=receiver.name,
            hint="raise net.core.rmem_max, or lower the rate",
        )


def _start(host: ProbeHost, module: str) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            host.command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise MachineError(f"cannot start a probe process: {error.strerror}", where=host.name) from None


def _feed(process: subprocess.Popen[str], text: str) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # it has ended, and its exit code says why
            process.stdin.write(f"{text}\n")
            process.stdin.flush()


def _finish(host: ProbeHost, process: subprocess.Popen[str], limit_seconds: float) -> str:
    try:
        output, errors = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"a probe process did not end within {limit_seconds:.0f} s", where=host.name
        ) from None
    if process.returncode:
        last = errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}"
        raise MachineError(f"a probe process failed: {last}", where=host.name)
    return output


def _report(host: ProbeHost, process: subprocess.Popen[str], limit_seconds: float) -> SendReport:
    output = _finish(host, process, limit_seconds)
    try:
        return SendReport.model_validate_json(output)
    except ValidationError:
        raise MachineError(f"a probe process answered {output[:80]!r}", where=host.name) from None
