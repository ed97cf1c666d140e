"""A session with a BMv2 switch: over P4Runtime, and over thrift for the depth of its queues."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from mltswitch.deploy.session import Session, quoted, refusal
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Device
from mltswitch.p4.program import shipped_program
from mltswitch.p4.queue_depth import port_mtus, priority_queues, set_queue_depth
from mltswitch.targets import Step
from mltswitch.targets.p4runtime import (
    BECOME_PRIMARY,
    COUNTERS,
    ENTRIES,
    LOAD_PROGRAM,
    METERS,
    NO_PROGRAM,
    OUR_PROGRAM,
    PIPELINE,
    PRIORITY_QUEUES,
    SET_QUEUE_DEPTH,
    UNKNOWN_MTUS,
)

if TYPE_CHECKING:
    from mltswitch.p4.switch import Switch


def check_p4runtime() -> None:
    """Raise MachineError where the P4 program to load is missing."""
    shipped_program()


@contextmanager
def open_p4runtime(device: Device) -> Iterator["P4RuntimeSession"]:
    """Connect as a reader; the session becomes the primary controller only when it has something to write."""
    with ExitStack() as stack:
        yield P4RuntimeSession(device, stack)


class P4RuntimeSession(Session):
    """A P4Runtime session, which takes the queries and commands of targets/p4runtime.py."""

    def __init__(self, device: Device, stack: ExitStack) -> None:
        self._device = device
        self._stack = stack
        self._program = shipped_program()
        self._reader = self._open(primary=False)
        self._writer: Switch | None = None

    def hang_up(self) -> None:
        """Close the connections, whatever still waits for them."""
        self._stack.close()

    def ask(self, command: str) -> str:
        """The program, or the content of its tables, meters and counters; nothing of a foreign program."""
        if command == PRIORITY_QUEUES:
            return self._count_queues()
        cookie = self._reader.cookie()
        if command == PIPELINE:
            return self._named_program(cookie)
        if cookie != self._program.cookie:
            return ""
        if command == ENTRIES:
            return "\n".join(self._reader.entries())
        if command == METERS:
            return "\n".join(self._reader.meters())
        if command == COUNTERS:
            return json.dumps(
                {
                    f"{port} {queue}": {name: count["packets"] for name, count in asdict(found).items()}
                    for (port, queue), found in self._reader.counters().items()
                }
            )
        raise DeviceError(f"has no answer to {command!r}: it speaks P4Runtime")

    def apply(self, steps: Sequence[Step]) -> None:
        """Carry out the steps one by one: of a batch, BMv2 would go on behind an entry that it refuses."""
        writer: Switch | None = None
        if not all(step.command.startswith(SET_QUEUE_DEPTH) for step in steps):
            writer = self._writer = self._writer or self._open(primary=True)
        for index, step in enumerate(steps):
            try:
                self._carry_out(writer, step.command)
            except (DeviceError, UserInputError) as error:
                raise refusal(steps, index, quoted(error.what), error.hint) from None

    def _carry_out(self, writer: "Switch | None", command: str) -> None:
        if writer is None or command.startswith(SET_QUEUE_DEPTH):
            self._set_queue_depth(int(command.split(" ")[1]))
        elif command == LOAD_PROGRAM:
            writer.load(self._program)
        elif command != BECOME_PRIMARY:  # which whoever sends anything has become
            writer.write([command])

    def _set_queue_depth(self, packets: int) -> None:
        device = self._device
        if not device.thrift_port:
            raise DeviceError(
                "only BMv2's thrift port can set how deep its queues are, and mltswitch_thrift_port is 0",
                hint="set it to the switch's --thrift-port",
            )
        set_queue_depth(device.address, device.thrift_port, packets)

    def _count_queues(self) -> str:
        device = self._device
        if not device.thrift_port:
            return "mltswitch_thrift_port is 0"
        try:
            queues = priority_queues(device.address, device.thrift_port)
        except DeviceError as error:
            return str(error)
        try:
            mtus = port_mtus(device.address, device.thrift_port)
        except DeviceError as error:
            return f"{queues}\n{UNKNOWN_MTUS}{error}"
        return "\n".join([str(queues), *(f"{port} {mtu}" for port, mtu in mtus.items())])

    def _open(self, *, primary: bool) -> "Switch":
        from mltswitch.p4.control import open_switch

        device = self._device
        return self._stack.enter_context(
            open_switch(device.endpoint, device_id=device.device_id, primary=primary)
        )

    def _named_program(self, cookie: int | None) -> str:
        if cookie == self._program.cookie:
            return OUR_PROGRAM
        return NO_PROGRAM if cookie is None else f"cookie {cookie:#018x}"
