"""One sending host of a probe: `python -m mltswitch.measure.sender`.

Reads its task, says that it is ready, reads when to start (ns since the epoch), sends, and reports.
"""

import errno
import socket
import sys
import time
from itertools import cycle
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress

from mltswitch.measure.packet import IPV4_UDP_HEADER_BYTES, PROBE_PORT, ProbePacket
from mltswitch.measure.schedule import Flow, Schedule, alternating, poisson_bursts
from mltswitch.wire import Ecn, TrafficClassByte

SHORTEST_SECONDS = 0.1
"""Of a shorter run one cannot say whether it was on time."""
SPIN_SECONDS = 100e-6
"""Below this a sleep is less exact than not sleeping."""


class BurstTask(BaseModel):
    """Poisson bursts of several classes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["bursts"] = "bursts"
    flows: tuple[Flow, ...]
    seed: int


class RampTask(BaseModel):
    """One class, important and unimportant in turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["ramp"] = "ramp"
    class_index: int
    packets_per_second: float = Field(gt=0)


class SendTask(BaseModel):
    """What one host sends, and when."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: int
    sender: int
    destinations: tuple[IPvAnyAddress, ...] = Field(min_length=1)
    """One address per path; bursts take them in turn."""
    class_dscps: tuple[int, ...]
    packet_bytes: int = Field(ge=64)
    """IP packet, headers included."""
    duration_seconds: float = Field(gt=0)
    traffic: Annotated[BurstTask | RampTask, Field(discriminator="kind")]

    def schedule(self) -> Schedule:
        """Every packet's time, class and importance."""
        if isinstance(self.traffic, RampTask):
            return alternating(
                self.traffic.class_index, self.traffic.packets_per_second, self.duration_seconds
            )
        return poisson_bursts(self.traffic.flows, self.duration_seconds, self.traffic.seed)


class SendReport(BaseModel):
    """How it went."""

    packets: int
    refused: int
    """Packets that the sending host's own kernel did not take."""
    late_seconds: float
    """Longest delay behind the schedule."""
    stretch: float
    """How much longer sending took than planned: 0.05 is 5 % below the planned rate."""


def send(task: SendTask, schedule: Schedule, start_ns: int) -> SendReport:
    """Send everything on schedule; blocks until the last packet has left."""
    padding = bytes(task.packet_bytes - IPV4_UDP_HEADER_BYTES - len(_header(task, 0, 0, is_important=False)))
    tags = {
        (index, important): int(TrafficClassByte(dscp, Ecn.ECT_0 if important else Ecn.NOT_ECT)).to_bytes(
            1, "little"
        )
        for index, dscp in enumerate(task.class_dscps)
        for important in (False, True)
    }
    paths = cycle([(str(address), PROBE_PORT) for address in task.destinations])
    refused, late, previous = 0, 0.0, None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        start = start_ns / 1e9
        entries = zip(
            schedule.time_seconds.tolist(),
            schedule.class_index.tolist(),
            schedule.is_important.tolist(),
            strict=True,
        )
        for sequence, (due, class_index, is_important) in enumerate(entries):
            ahead = start + due - time.time()
            if ahead > SPIN_SECONDS:
                time.sleep(ahead)
            late = max(late, -ahead)
            if (due, class_index) != previous:  # a burst shares one path
                path, previous = next(paths), (due, class_index)
            header = _header(task, class_index, sequence, is_important=is_important)
            tag = (socket.IPPROTO_IP, socket.IP_TOS, tags[class_index, is_important])
            try:
                channel.sendmsg([header, padding], [tag], 0, path)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                    raise
                refused += 1
    took = time.time() - start
    planned = float(schedule.time_seconds[-1]) if len(schedule) else task.duration_seconds
    stretch = max(0.0, took / max(planned, SHORTEST_SECONDS) - 1.0)
    return SendReport(packets=len(schedule), refused=refused, late_seconds=late, stretch=stretch)


def _header(task: SendTask, class_index: int, sequence: int, *, is_important: bool) -> bytes:
    return ProbePacket(task.run, task.sender, class_index, is_important, sequence, time.time_ns()).pack()


def main() -> None:
    """Everything slow happens before the start is known, so that all senders begin together."""
    task = SendTask.model_validate_json(sys.stdin.readline())
    schedule = task.schedule()
    print("ready", flush=True)  # noqa: T201  (the probe waits for this line)
    report = send(task, schedule, int(sys.stdin.readline()))
    print(report.model_dump_json())  # noqa: T201  (the rest of the answer)


if __name__ == "__main__":
    main()
