"""The hosts of a measurement: one program on each, fed over standard input, by `ssh` for instance.

The program is sent with the first task, so a host needs python3 and nothing else.
"""

import base64
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mltswitch.errors import MachineError
from mltswitch.measure import agent
from mltswitch.measure.schedule import Run, run_seconds
from mltswitch.plan import Plan
from mltswitch.units import ETHERNET_HEADER_BYTES
from mltswitch.wire import Ecn
from mltswitch.wire.internet import IPV4_HEADER_BYTES, UDP_HEADER_BYTES

HEADER_BYTES: Final = ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES + UDP_HEADER_BYTES
BOOTSTRAP: Final = "import sys; exec(sys.stdin.read(int(sys.stdin.readline())))"
"""Python code that reads the program's length and the program from standard input, and runs it."""
TEST_PORT: Final = 47002
"""The UDP destination port unless another is chosen."""
PATIENCE_SECONDS: Final = 60.0
"""Seconds beyond the planned end of a task after which the host's program is ended."""
LARGEST_LATE_SECONDS: Final = 0.25
LARGEST_REFUSED_SHARE: Final = 0.001
"""Largest share of packets that a sender's kernel may refuse: beyond it the load was not the planned one."""
RECORD: Final = np.dtype([("sender", "u1"), ("tos", "u1"), ("sequence", "<u4"), ("arrived_ns", "<i8")])
"""Form of one received datagram's record; `tos` is the DSCP/ECN byte as it arrived."""


class DisturbedRunError(MachineError):
    """A host did not send or receive as planned in this run; another run may succeed."""


@dataclass(frozen=True, slots=True)
class TestHost:
    """A host of a measurement, with python3."""

    __test__ = False  # pytest takes every Test… for its own
    name: str
    prefix: tuple[str, ...]
    """Words before a command that runs it there: `ip netns exec …`, `ssh …`; empty for this machine."""
    destinations: tuple[IPv4Address, ...] = ()
    """Addresses to which a sender sends, one per path, used in turn."""
    quoted: bool = False
    """Whether a shell on the way takes the command apart again, as ssh's does."""

    def command(self) -> list[str]:
        """Command line that starts the program's loader there."""
        program = f"'{BOOTSTRAP}'" if self.quoted else BOOTSTRAP
        return [*self.prefix, "python3", "-c", program]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One run as its hosts saw it: what was sent and received, and when."""

    run: Run
    sent_ns: tuple[npt.NDArray[np.int64], ...]
    """When each packet of each sender left, in nanoseconds of the sender's clock."""
    late_seconds: float
    """How many seconds the slowest sender fell behind its schedule."""
    records: npt.NDArray[np.void]


class Hosts:
    """The running programs on a receiver and some senders."""

    def __init__(
        self, plan: Plan, programs: Sequence["_Program"], packet_bytes: int, port: int, hint: str
    ) -> None:
        self._receiver, *self._senders = programs
        self._dscps = np.array([entry.dscp[0] for entry in plan.classes], dtype=np.uint8)
        self._payload_bytes = packet_bytes - HEADER_BYTES
        self._port = port
        self._hint = hint
        self._number = time.time_ns() % 2**31

    def exchange(self, run: Run) -> Exchanged:
        """Send one run; returns when it has ended.

        Raises:
            DisturbedRunError: a host was late, refused packets or dropped some; the next run may do better.
            MachineError: a host's program failed.
        """
        self._number += 1
        seconds = run_seconds(run)
        common = {"run": self._number, "port": self._port}
        self._receiver.say(json.dumps({"role": "receive", "seconds": seconds, **common}))
        for number, (sender, schedule) in enumerate(zip(self._senders, run, strict=True)):
            destinations = [str(address) for address in sender.host.destinations]
            ecn = np.where(schedule.is_important, np.uint8(Ecn.ECT_0), np.uint8(Ecn.NOT_ECT))
            task = {
                "role": "send",
                "sender": number,
                "destinations": destinations,
                "payload_bytes": self._payload_bytes,
                "due_seconds": _base64(schedule.time_seconds.astype("<f8")),
                "tos": _base64(self._dscps[schedule.class_index] << 2 | ecn),
                "path": _base64((schedule.turn % len(destinations)).astype(np.uint8)),
                **common,
            }
            sender.say(json.dumps(task))
        programs = (self._receiver, *self._senders)
        for program in programs:
            program.expect_ready()
        for program in programs:
            program.say("go")
        # All answers are read before one is judged, so that after a disturbed run the next one is in step.
        answers = [sender.answer(seconds) for sender in self._senders]
        received = self._receiver.answer(seconds)
        for sender, answer, schedule in zip(self._senders, answers, run, strict=True):
            self._require_on_time(sender.host, answer, len(schedule))
        if received["dropped"]:
            raise DisturbedRunError(
                f"the receiving host itself dropped packets ({received['dropped']})",
                where=self._receiver.host.name,
                hint="raise net.core.rmem_max there, or let the port run at a lower rate while you test it",
            )
        return Exchanged(
            run,
            tuple(np.frombuffer(base64.b64decode(answer["sent_ns"]), dtype="<i8") for answer in answers),
            max(float(answer["late_seconds"]) for answer in answers),
            np.frombuffer(base64.b64decode(received["records"]), dtype=RECORD),
        )

    def _require_on_time(self, host: TestHost, answer: dict[str, Any], packets: int) -> None:
        """What a host did not send, or not in time, must not count as the switch's doing."""
        if answer["refused"] > LARGEST_REFUSED_SHARE * packets:
            raise DisturbedRunError(
                f"its own kernel refused {answer['refused']} of {packets} packets", where=host.name
            )
        late = max(answer["late_seconds"], answer["overrun_seconds"])
        if late > LARGEST_LATE_SECONDS:
            raise DisturbedRunError(
                f"sent up to {late:.2f} s late: it is too slow for this port, or too busy",
                where=host.name,
                hint=self._hint,
            )


def _base64(numbers: npt.NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")


class _Program:
    """The program on one host."""

    def __init__(self, host: TestHost) -> None:
        self.host = host
        try:
            self._process = subprocess.Popen(
                host.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            has_no_ssh = isinstance(error, FileNotFoundError) and host.command()[0] == "ssh"
            hint = "`apt-get install openssh-client`" if has_no_ssh else ""
            raise MachineError(f"cannot be reached: {error.strerror}", where=host.name, hint=hint) from None
        source = Path(agent.__file__).read_text(encoding="ascii")
        self.say(f"{len(source)}\n{source}", end="")

    def say(self, text: str, end: str = "\n") -> None:
        if self._process.stdin is not None:
            # It has ended, and its exit code says why; or it reads nothing, and a pipe does not hold a task.
            with self._ended_after(PATIENCE_SECONDS), suppress(BrokenPipeError):
                self._process.stdin.write(text + end)
                self._process.stdin.flush()

    def expect_ready(self) -> None:
        line = self._line(PATIENCE_SECONDS)
        if line != "ready\n":
            raise self._failed(f"its program began with {line[:80]!r}")

    def answer(self, seconds: float) -> dict[str, Any]:
        line = self._line(seconds + PATIENCE_SECONDS)
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise self._failed(f"its program answered {line[:80]!r}")
        return found

    def _line(self, seconds: float) -> str:
        with self._ended_after(seconds):
            return self._process.stdout.readline() if self._process.stdout else ""

    @contextmanager
    def _ended_after(self, seconds: float) -> Iterator[None]:
        """End the program where what follows takes longer."""
        watchdog = threading.Timer(seconds, self._process.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def _failed(self, problem: str) -> MachineError:
        self._process.kill()
        _, errors = self._process.communicate()
        last = errors.strip().splitlines()[-1] if errors.strip() else problem
        return MachineError(
            last, where=self.host.name, hint="the host must let us in without a question, and have python3"
        )

    def close(self) -> None:
        """The program ends with its standard input."""
        with suppress(ValueError):  # all has been closed
            try:
                self._process.communicate(timeout=2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()


@contextmanager
def open_hosts(
    plan: Plan,
    receiver: TestHost,
    senders: Sequence[TestHost],
    packet_bytes: int,
    *,
    port: int = TEST_PORT,
    hint: str = "name more hosts, or let the port run at a lower rate while you test it",
) -> Iterator[Hosts]:
    """Start the program on every host, and end it afterwards; raises MachineError.

    The receiver listens at `port` of all its addresses, so a machine can have one receiver per port.

    Args:
        plan: decides the code points of the classes.
        packet_bytes: size of every packet, with all headers from Ethernet on.
        hint: what helps where a sender is too slow.
    """
    with ExitStack() as stack:
        programs = []
        for host in (receiver, *senders):
            program = _Program(host)
            stack.callback(program.close)
            programs.append(program)
        yield Hosts(plan, programs, packet_bytes, port, hint)
