"""Brings a lab up and down, and reports its status."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError, MltswitchError, UserInputError
from mltswitch.lab import bmv2, native, rootless, uml
from mltswitch.lab.kernel import Machine, examine, examine_for_bmv2
from mltswitch.lab.keys import create_lab_keys
from mltswitch.lab.layout import Layout, forwarding_platform, lay_out
from mltswitch.lab.model import (
    BMV2_PLATFORM,
    DeviceAddress,
    DeviceKind,
    Engine,
    LabMode,
    LabStatus,
    Records,
)
from mltswitch.lab.namespaces import NamespaceHandle, our_namespaces, remove_namespace
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import end_recorded, start_recorded
from mltswitch.lab.state import (
    LabState,
    boot_identity,
    claim,
    claimed_by_another,
    locked,
    read_state,
    write_state,
)
from mltswitch.plan import Fabric, Topology

SUPERVISOR_MODULE: Final = "mltswitch.lab.supervisor"

_RECORD: Final = "supervisor"
_GRACE_SECONDS: Final = 5.0
Progress = Callable[[str], None]

READY_SECONDS: Final = 180.0
"""How many seconds `up` waits for the last device to answer."""
NOTHING_KEPT: Final = Records()


class Lab:
    """The lab whose files lie in one state directory."""

    def __init__(self, state_directory: Path) -> None:
        self.paths = LabPaths(state_directory.resolve())

    def up(
        self,
        fabric: Fabric,
        devices: Sequence[DeviceAddress],
        *,
        progress: Progress,
        engine: Engine = Engine.AUTO,
        records: Records = NOTHING_KEPT,
    ) -> LabStatus:
        """Build the lab and return when every device answers; the engine matters to BMv2 switches only.

        Raises UserInputError for a fabric, devices or wishes that cannot be met, MachineError when something
        is in the way or fails; what was already built is removed again, its logs are kept.
        """
        machine = _machine(fabric, engine, records)
        with_switches = machine.mode is not LabMode.EMULATORS_ONLY
        layout = lay_out(fabric, devices, with_switches=with_switches)
        self.paths.create()
        with locked(self.paths):
            self._refuse_second()
            self.paths.forget_logs()
            for line in machine.missing:
                progress(line)
            try:
                state = self._build(layout, machine, records, progress)
            except (MltswitchError, OSError, subprocess.SubprocessError) as error:
                tail = self.paths.log_tail()
                self._tear_down(progress, keep_logs=True)
                if isinstance(error, UserInputError):
                    raise
                raise MachineError(
                    f"the lab did not start: {error}", hint=f"log: {tail}" if tail else ""
                ) from error
            except BaseException:  # interrupted: leave nothing behind either
                self._tear_down(progress, keep_logs=True)
                raise
        return self._status(state)

    def down(self, progress: Progress) -> None:
        """Remove whatever is left of the lab, and do nothing if there is none. Raises MachineError.

        The lab of another state directory stays.
        """
        other = self.another
        if other:
            progress(other)
        if not self.paths.root.is_dir() and (other or not our_namespaces()):
            progress("no lab is up")
            return
        with locked(self.paths):
            self._tear_down(progress, keep_logs=False)

    @property
    def another(self) -> str:
        """Error text that says the lab of another inventory is up, and how to name it; empty if none is."""
        other = claimed_by_another(self.paths)
        return f"the lab of {other} is up; its inventory is named by -i {other.parent}" if other else ""

    def status(self) -> LabStatus:
        """The status of the lab; asks every device whether it answers."""
        state = read_state(self.paths)
        return self._status(state)

    def run(self, argv: Sequence[str]) -> int:
        """Run a command where the lab's devices are reachable, on this terminal; returns its exit code."""
        state = self._require()
        if state.mode is LabMode.ROOTLESS:
            return rootless.run(self.paths, argv)
        try:
            return subprocess.run(list(argv), check=False).returncode
        except OSError as error:
            raise UserInputError(f"cannot be run: {error.strerror}", where=argv[0]) from None

    def host_namespace(self, name: str) -> NamespaceHandle:
        """The network namespace of one host.

        Raises UserInputError if the host has none, MachineError if it lies in another kernel.
        """
        state = self._require()
        if state.mode is LabMode.ROOTLESS:
            raise MachineError(
                "the lab's hosts are inside user-mode-linux", hint="run the command by `mltswitch lab run --`"
            )
        known = [host.name for host in state.layout.real_hosts]
        if name not in known:
            raise UserInputError(
                f"{name!r} is no host with packets behind it",
                expected=f"one of {', '.join(known)}" if known else "a lab with Linux switches",
            )
        return NamespaceHandle(state.layout.namespace(name))

    def _require(self) -> LabState:
        state = read_state(self.paths)
        if state is None or not state.ready:
            raise MachineError("no lab is up", where=str(self.paths.root), hint="run `mltswitch lab up`")
        if state.boot != boot_identity():
            raise MachineError(
                "the lab was started before this machine was", hint="run `mltswitch lab down`, then `up`"
            )
        return state

    def _refuse_second(self) -> None:
        root = self.paths.root if self.paths.state.exists() else claimed_by_another(self.paths)
        left = our_namespaces()
        if root is not None or left:
            what = "a lab is up already, or was not removed"
            where = str(root) if root is not None else f"network namespaces {', '.join(left)}"
            raise MachineError(what, where=where, hint="run `mltswitch lab down` first, for its inventory")

    def _build(self, layout: Layout, machine: Machine, records: Records, progress: Progress) -> LabState:
        state = LabState(
            mode=machine.mode,
            fabric=layout.fabric,
            devices=layout.devices,
            missing=machine.missing,
            keep_logs=records.keep_logs or records.pcap,
        )
        if state.namespaces:
            claim(self.paths)
        write_state(self.paths, state)
        if machine.mode is LabMode.ROOTLESS:
            rootless.boot(self.paths, state, progress)
        else:
            self._build_here(layout, state, records, progress)
        state = state.model_copy(update={"ready": True})
        write_state(self.paths, state)
        return state

    def _build_here(self, layout: Layout, state: LabState, records: Records, progress: Progress) -> None:
        paths = self.paths
        by_ssh = [device for device in layout.devices if device.platform != BMV2_PLATFORM]
        if by_ssh:
            create_lab_keys(paths.private_key, paths.known_hosts, paths.host_keys, by_ssh)
        if state.mode is LabMode.NATIVE:
            native.build(layout, paths, progress)
        elif state.mode is LabMode.USER_MODE_LINUX:
            native.build_around_uml(layout, paths, state.instance, progress)
        elif state.mode is LabMode.BMV2:
            bmv2.build(layout, paths, records, progress)
        elif state.mode is LabMode.BMV2_MININET:
            bmv2.build_by_mininet(layout, paths, records, progress)
        with (paths.logs / "supervisor.log").open("ab") as log:
            command = [sys.executable, "-P", "-m", SUPERVISOR_MODULE, str(paths.root)]
            daemon = start_recorded(command, paths.processes / _RECORD, log=log)
        progress("waiting for the devices to answer")
        self._wait_for_devices(state, daemon)

    def _wait_for_devices(self, state: LabState, daemon: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        waiting = _present(state)
        while waiting:
            if daemon.poll() is not None:
                raise MachineError("the lab's supervisor ended")
            answering = _answering(waiting)
            waiting = [device for device in waiting if device.name not in answering]
            if waiting and time.monotonic() > deadline:
                names = ", ".join(device.name for device in waiting)
                raise MachineError(f"no answer after {READY_SECONDS:g} s", where=names)
            if waiting:
                time.sleep(0.1)

    def _tear_down(self, progress: Progress, *, keep_logs: bool) -> None:
        paths = self.paths
        state = self._readable_state()
        found = len(self._namespaces(state))  # what mininet made it also removes
        if state is None or state.boot == boot_identity():
            native.stop(paths)
            bmv2.stop(paths)
            end_recorded(paths.processes / _RECORD, grace_seconds=_GRACE_SECONDS)
            uml.stop(paths, state.instance if state is not None else None)
        while names := self._namespaces(state):
            for name in names:
                remove_namespace(name)
        had_state = paths.state.exists()
        asked = state is not None and state.keep_logs
        paths.remove(keep_logs=keep_logs or asked)
        if asked:
            progress(f"logs and captures stay in {paths.logs}, until the next `up` or `down`")
        progress(f"removed {found} network namespaces" if found or had_state else "no lab is up")

    def _namespaces(self, state: LabState | None) -> tuple[str, ...]:
        """Those of our record that exist; without one of this boot all that no other lab has."""
        if claimed_by_another(self.paths) is not None:
            return ()
        left = our_namespaces()
        if state is None or state.boot != boot_identity():
            return left
        return tuple(name for name in left if name in state.namespaces)

    def _readable_state(self) -> LabState | None:
        """The record, or none where it is damaged: `down` then goes by names alone."""
        try:
            return read_state(self.paths)
        except MachineError:
            return None

    def _status(self, state: LabState | None) -> LabStatus:
        if state is None:
            return LabStatus(LabMode.DOWN, "", str(self.paths.root), "", "", (), (), ())
        if state.mode is LabMode.ROOTLESS and state.ready:
            return rootless.status(self.paths, state)
        return state.report(self.paths, _answering(_present(state)))


def _machine(fabric: Fabric, engine: Engine, records: Records) -> Machine:
    if forwarding_platform(Topology(fabric)) == BMV2_PLATFORM:
        return examine_for_bmv2(engine)
    for option, given in (("--engine", engine is not Engine.AUTO), ("--pcap", records.pcap)):
        if given:
            raise UserInputError("is for BMv2 switches, and this fabric has none", where=option)
    return examine()


def _present(state: LabState) -> list[DeviceAddress]:
    """The devices that the lab has."""
    return [device for device in state.devices if state.layout.kind(device) is not DeviceKind.ABSENT]


def _answering(devices: Collection[DeviceAddress]) -> set[str]:
    """The names of those of some devices that answer; all are asked at once."""
    if not devices:
        return set()
    with ThreadPoolExecutor(max_workers=min(len(devices), 32)) as pool:
        answered = pool.map(lambda device: answers(device.platform, device.address, device.port), devices)
        return {device.name for device, is_there in zip(devices, answered, strict=True) if is_there}


ANSWER_SECONDS: Final = 60.0
"""How long to wait for a device's answer: a busy user-mode-linux takes seconds to start a process."""

_MAXIMUM_BANNER_BYTES: Final = 255
_EMPTY_SETTINGS: Final = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HTTP2_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _EMPTY_SETTINGS
_FRAME_TYPE: Final = 3
_SETTINGS_TYPE: Final = 4


def answers(platform: str, address: str, port: int) -> bool:
    """Whether a device's SSH server (BMv2: gRPC server) answers at an address within ANSWER_SECONDS.

    Linux switches and emulators have SSH, whose banner comes unasked (RFC 4253, section 4.2). BMv2 has gRPC,
    which stands on HTTP/2: the first frame of its server's greeting is SETTINGS (RFC 9113, section 3.4).
    """
    try:
        with socket.create_connection((address, port), timeout=ANSWER_SECONDS) as connection:
            if platform != BMV2_PLATFORM:
                return connection.recv(_MAXIMUM_BANNER_BYTES).startswith(b"SSH-2.0")
            connection.sendall(_HTTP2_GREETING)
            head = connection.recv(len(_EMPTY_SETTINGS), socket.MSG_WAITALL)
            return len(head) == len(_EMPTY_SETTINGS) and head[_FRAME_TYPE] == _SETTINGS_TYPE
    except OSError:
        return False
