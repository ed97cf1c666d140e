"""Network namespaces by name: entering them, listing ours and removing them."""

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab.layout import PREFIX
from mltswitch.lab.processes import kill_and_wait

NAMESPACE_DIRECTORY: Final = Path("/run/netns")
"""Where ip-netns(8) keeps them."""

_CLONE_NEWNET: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class NamespaceHandle:
    """One network namespace of the lab."""

    name: str

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` as a command that runs in the namespace."""
        return ["ip", "netns", "exec", self.name, *argv]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread inside the namespace; a socket opened there stays there (setns(2)).

        Other threads of the process are not affected. Raises MachineError when the namespace is gone.
        """
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._enter()
            try:
                yield
            finally:
                _set_namespace(own, "the namespace left before")
        finally:
            os.close(own)

    def _enter(self) -> None:
        try:
            target = os.open(NAMESPACE_DIRECTORY / self.name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise MachineError(
                f"cannot be opened: {error.strerror}",
                where=f"network namespace {self.name}",
                hint="is the lab up? mltswitch lab status tells",
            ) from None
        try:
            _set_namespace(target, self.name)
        finally:
            os.close(target)


def _set_namespace(descriptor: int, name: str) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise MachineError(
            f"cannot be entered: {os.strerror(ctypes.get_errno())}", where=f"network namespace {name}"
        )


def our_namespaces() -> tuple[str, ...]:
    """Names of all namespaces that carry the lab's prefix; a user who is not root has none."""
    if os.geteuid() != 0:
        return ()
    return tuple(sorted(entry.name for entry in NAMESPACE_DIRECTORY.glob(f"{PREFIX}*")))


def remove_namespace(name: str) -> None:
    """End every process in the namespace, then remove it; raises MachineError."""
    if not name.startswith(PREFIX):
        raise ValueError(f"{name} is no namespace of the lab")
    kill_and_wait(_process_ids(name))
    done = subprocess.run(["ip", "netns", "delete", name], capture_output=True, text=True, check=False)
    if done.returncode and (NAMESPACE_DIRECTORY / name).exists():
        raise MachineError(f"cannot be removed: {done.stderr}", where=f"network namespace {name}")


def _process_ids(name: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]
