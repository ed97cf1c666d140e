"""What tests do with a switch; and a real simple_switch_grpc with cables, ended by its process id."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import pytest

from bmv2_tests.namespace import CableEnd, End, Namespace, frames_waiting, wait_for_frames, wait_until
from bmv2_tests.packets import barrier, is_barrier, is_plug, number_of, plug
from bmv2_tests.runtime_cli import RuntimeCli
from mltswitch.lab.bmv2_node import takes_notifications
from mltswitch.p4.control import open_switch
from mltswitch.p4.program import QUEUES_PER_PORT, Program
from mltswitch.p4.queue_depth import set_queue_depth
from mltswitch.p4.switch import DECISION_COUNTER, DECISIONS, QueueCounters, Switch

SWITCH: Final = "simple_switch_grpc"
CLI: Final = "simple_switch_CLI"
QUEUE_DEPTH_PACKETS: Final = 16384
"""So deep that BMv2 itself never drops."""
CPU_PORT: Final = 255
_ATTEMPTS: Final = 20
"""At three seconds each."""
_PACKET_SECONDS: Final = 1.05
"""At one packet per second, the lowest rate that BMv2 knows."""
Result = TypeVar("Result")
BMV2: Final = pytest.param("bmv2", marks=pytest.mark.bmv2)
INTERPRETER_AND_BMV2: Final = ("interpreter", BMV2)
"""Most tests run with the compiled program in the interpreter, which needs nothing, and in a real BMv2."""
real_only: Final = pytest.mark.parametrize("module_switch", [BMV2], indirect=True)
"""Of tests that need a real port, clock or thread of BMv2."""
QUEUE_COUNTERS: Final = tuple(counter.name for counter in fields(QueueCounters))
_END_SECONDS: Final = 60.0
_numbers = count()


def missing() -> str | None:
    """Why no BMv2 can be started here; None where it can."""
    absent = [program for program in (SWITCH, CLI, "ip", "tc") if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return None if os.geteuid() == 0 else "network namespaces need root"


def ticket_commands(port: int, queue: int, admitted: int, left: int) -> tuple[str, str]:
    """What makes the program believe that so many bytes were ever admitted to a queue, and left it.

    The times that stand above the tickets become 0, and so does whether the queue was left empty.
    """
    index = place(port, queue)
    return (
        f"register_write admitted {index} {admitted}",
        f"register_write departed {index} {left}",
    )


def place(port: int, queue: int) -> int:
    """Index of a queue in every register, counter and meter."""
    return port * QUEUES_PER_PORT + queue


class AnySwitch(ABC):
    """What runs the program: a real BMv2 or the interpreter; `ends` are the other ends of its cables."""

    control: Switch
    ends: Mapping[int, End]
    cli: RuntimeCli
    is_alive: bool
    _barriers: Iterator[int]

    @abstractmethod
    def load(self, program: Program, lines: Sequence[str] = ()) -> None:
        """Run a program afresh, all cells and tables empty; then the lines, queues deep and fast."""

    @abstractmethod
    def drain(self) -> list[tuple[int, bytes]]:
        """(port, frame) of what has come out by now."""

    @abstractmethod
    def frames(self) -> Iterator[tuple[int, bytes]]:
        """(port, frame) as they come, until the caller has enough; fails where none comes."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let so much of the switch's time pass."""

    def exchange(self, frame: bytes, port: int = 1) -> list[tuple[int, bytes]]:
        """(port, frame) of everything that comes out because of one frame that goes in.

        Barriers follow it, one to each port into its last queue: what does not come before them never comes.
        """
        return self.exchange_all([frame], port)

    def exchange_all(self, frames: Sequence[bytes], port: int = 1) -> list[tuple[int, bytes]]:
        """Like `exchange`, for several frames in a row."""
        for frame in frames:
            self.ends[port].send(frame)
        return self.pass_barriers(port)

    def pass_barriers(self, port: int = 1, targets: Iterable[int] = ()) -> list[tuple[int, bytes]]:
        """(port, frame) of what comes until all that was sent before is through, to all ports or to some."""
        awaited = set(targets) or set(self.ends)
        number = next(self._barriers)
        for target in awaited:
            self.ends[port].send(barrier(target, number))
        found = []
        for came_from, frame in self.frames():
            if is_barrier(frame) and number_of(frame) == number:
                awaited.remove(came_from)
            else:
                found.append((came_from, frame))
            if not awaited:
                return found + self.drain()
        raise AssertionError("unreachable: waiting fails where nothing comes")

    @contextmanager
    def held(self, places: Sequence[tuple[int, int]]) -> Iterator["Hold"]:
        """Queues whose packets all wait, for most of a second; not those of port 1, by which plugs come.

        BMv2 reckons when a packet may leave as it is queued. At one packet per second the second of two
        waits, and all behind it wait as long, even after the rate is lifted; then they leave at once.
        """
        hold = Hold(self, places)
        hold.plug()
        try:
            yield hold
        finally:
            if not hold.is_released:
                hold.release()

    def packet_out(self, frame: bytes, port: int) -> None:
        """Have the switch send a frame of any length by a port (P4Runtime, PacketOut)."""
        self.control.packet_out(frame, port)

    def counts(self, port: int, queue: int) -> dict[str, int]:
        """Packets by decision, and how many arrived."""
        first = place(port, queue) * DECISIONS
        found = self.cli.counters(*((DECISION_COUNTER, first + index) for index in range(DECISIONS)))
        counts = {name: packets for name, (packets, _) in zip(QUEUE_COUNTERS, found, strict=True)}
        return {"arrived": sum(counts.values()), **counts}

    def refused(self) -> dict[str, int]:
        """Packets by reason, without those of which there are none."""
        return {reason: packets for reason, packets in self.control.refusals().items() if packets}

    def set_waiting(self, port: int, queue: int, size_bytes: int, *, admitted: int | None = None) -> None:
        """Make the program believe that so many bytes wait, and that the queue was not left empty."""
        admitted = size_bytes if admitted is None else admitted
        self.cli.run(*ticket_commands(port, queue, admitted, (admitted - size_bytes) % 2**32))

    def tickets(self, port: int, queue: int) -> tuple[int, int]:
        """Bytes ever admitted, and ever left."""
        index = place(port, queue)
        cells = (("departed", index), ("admitted", index), ("departed", index))
        while True:
            left, admitted, left_after = self.cli.registers(*cells)
            if left == left_after:
                return admitted % 2**32, left % 2**32

    def waiting(self, port: int, queue: int) -> int:
        """Bytes that wait, as the program counts them."""
        admitted, left = self.tickets(port, queue)
        return (admitted - left) % 2**32


class Bmv2(AnySwitch):
    """One switch process; `ends` holds only ends that a test holds."""

    def __init__(
        self,
        namespace: Namespace,
        interfaces: Mapping[int, str],
        ends: Mapping[int, CableEnd],
        thrift_port: int,
    ):
        self.namespace = namespace
        self.interfaces = interfaces
        self.ends: Mapping[int, CableEnd] = ends
        self._thrift_port = thrift_port
        self._device_id = 1
        self._stack = ExitStack()
        self._barriers = count(1)

    def __enter__(self) -> "Bmv2":
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bmv2-test-")))
        self._log = folder / "log"
        socket_file = folder / "grpc"
        self._address = f"unix:{socket_file}"
        options = [word for port, name in self.interfaces.items() for word in ("-i", f"{port}@{name}")]
        # The files of its own debugger and notifications lie in /tmp under one name for all switches.
        command = self.namespace.command(
            *(SWITCH, "--no-p4", "--device-id", str(self._device_id), *options),
            *(
                "--thrift-port",
                str(self._thrift_port),
                "-L",
                "off",
                *(("--notifications-addr", f"ipc://{folder}/notify") if takes_notifications() else ()),
            ),
            *("--", "--grpc-server-addr", self._address, "--cpu-port", str(CPU_PORT)),
            *("--priority-queues", str(QUEUES_PER_PORT)),
        )
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._stack.callback(self._end)
        wait_until(lambda: _listens(socket_file) or not self.is_alive, f"{SWITCH} listens")
        assert self.is_alive, self.log()
        self.control: Switch = self._stack.enter_context(
            open_switch(self._address, device_id=self._device_id)
        )
        self._cli: RuntimeCli | None = None

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def is_alive(self) -> bool:  # type: ignore[override]  # a property where others have an attribute
        """Whether the process runs."""
        return self.process.poll() is None

    def log(self) -> str:
        """What the process has said."""
        return self._log.read_text(errors="replace")

    @property
    def cli(self) -> RuntimeCli:  # type: ignore[override]  # likewise
        """BMv2's command line; there is one as soon as a program runs."""
        if self._cli is None:
            self._cli = RuntimeCli(self.namespace.command(CLI, "--thrift-port", str(self._thrift_port)))
            self._stack.callback(self._cli.close)
        return self._cli

    def load(self, program: Program, lines: Sequence[str] = ()) -> None:
        self.control.load(program)
        self.control.write(lines)
        set_queue_depth(self._address, self._thrift_port, QUEUE_DEPTH_PACKETS)
        self.cli.run("set_queue_rate 0")

    def drain(self) -> list[tuple[int, bytes]]:
        return frames_waiting(self.ends)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        return wait_for_frames(self.ends)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def shape(self, port: int, rate: str) -> None:
        """Let only so much leave by a port; a full packet socket then holds up the switch's own queues.

        The limit is large, so nothing is lost behind the switch (tc-tbf(8)).
        """
        self._tbf("replace", port, rate)

    def reshape(self, port: int, rate: str) -> None:
        """Change the rate, keeping what waits."""
        self._tbf("change", port, rate)
        # tbf looks at its new rate when the next packet comes, or when the old rate would have let one go.
        end = CableEnd(self.namespace, self.interfaces[port])
        end.send(barrier(port, 0))
        end.close()

    def unshape(self, port: int) -> None:
        """Everything may leave again."""
        self.namespace.run("tc", "qdisc", "delete", "dev", self.interfaces[port], "root")

    def _tbf(self, verb: str, port: int, rate: str) -> None:
        limits = ("rate", rate, "burst", "10kb", "limit", "100mb")
        self.namespace.run("tc", "qdisc", verb, "dev", self.interfaces[port], "root", "tbf", *limits)

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class TooSlowError(Exception):
    """The machine was too busy to do in time what must happen while a queue is held; try again."""


def patiently(attempt: Callable[[], Result]) -> Result:
    """What an attempt gives, once the machine is fast enough for it."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except TooSlowError:
            continue
    return attempt()


class Hold:
    """Queues that are held; each holds one plug, in front."""

    def __init__(self, switch: AnySwitch, places: Sequence[tuple[int, int]]):
        self.places = tuple(places)
        self.is_released = False
        self._switch = switch
        self._plugs_seen = 0

    def plug(self) -> None:
        """Hold them."""
        ports = sorted({port for port, _ in self.places})
        assert 1 not in ports
        self._switch.cli.run(*(f"set_queue_rate 1 {port}" for port in ports))
        # By then all queues may send at once, so that all first plugs leave together.
        self._switch.sleep(_PACKET_SECONDS)
        for number in (0, 1):
            for port, queue in self.places:
                self._switch.ends[1].send(plug(port, queue, number))
            if number == 0:
                self._await_plugs()
        self.settle()
        self._switch.cli.run(*(f"set_queue_rate 0 {port}" for port in ports))

    def settle(self, port: int = 1) -> list[tuple[int, bytes]]:
        """Wait until all that was sent into a port is decided; what has come out of the other queues."""
        found = self._without_plugs(self._switch.pass_barriers(port, targets=[1]))
        if self._plugs_seen > len(self.places):
            raise TooSlowError
        return found

    def release(self) -> list[tuple[int, bytes]]:
        """(port, frame) of all that comes out when they are served again, without the plugs."""
        self.is_released = True
        found = self._await_plugs(2)
        return found + self._without_plugs(self._switch.pass_barriers())

    def _await_plugs(self, rounds: int = 1) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        frames = self._switch.frames()
        while self._plugs_seen < rounds * len(self.places):
            found += self._without_plugs([next(frames)])
        return found

    def _without_plugs(self, came: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        found = [(port, frame) for port, frame in came if not is_plug(frame)]
        self._plugs_seen += len(came) - len(found)
        return found


@contextmanager
def running_switch(ports: int) -> Iterator[Bmv2]:
    """A switch in a namespace of its own, with a cable in each of the ports 1 to `ports`."""
    with ExitStack() as stack:
        namespace = stack.enter_context(Namespace(f"bmv2-test-{os.getpid()}-{next(_numbers)}"))
        ends = {}
        for port in range(1, ports + 1):
            namespace.cable(f"s{port}", f"h{port}")
            ends[port] = CableEnd(namespace, f"h{port}")
            stack.callback(ends[port].close)
        interfaces = {port: f"s{port}" for port in ends}
        yield stack.enter_context(Bmv2(namespace, interfaces, ends, 9090))


def _listens(socket_file: Path) -> bool:
    """Its file is there a moment before it does."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(socket_file)) == 0
