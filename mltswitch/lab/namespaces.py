"""The lab's network namespaces by name: entering, listing and removing them."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab.bmv2_node import NAMESPACE_PREFIX
from mltswitch.lab.processes import kill_and_wait
from mltswitch.netns import inside

NAMESPACE_DIRECTORY: Final = Path("/run/netns")
"""The folder in which ip-netns(8) keeps named network namespaces."""


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
        with ExitStack() as stack:
            try:
                stack.enter_context(inside(NAMESPACE_DIRECTORY / self.name))
            except OSError as error:
                raise MachineError(
                    f"cannot be entered: {error.strerror}",
                    where=f"network namespace {self.name}",
                    hint="is the lab up? mltswitch lab status tells",
                ) from None
            yield


def our_namespaces() -> tuple[str, ...]:
    """Names of all namespaces that carry the lab's prefix; a user who is not root has none."""
    if os.geteuid() != 0:
        return ()
    return tuple(sorted(entry.name for entry in NAMESPACE_DIRECTORY.glob(f"{NAMESPACE_PREFIX}*")))


def remove_namespace(name: str, prefix: str = NAMESPACE_PREFIX) -> None:
    """End every process in the namespace, then remove it; raises MachineError."""
    if not name.startswith(prefix):
        raise ValueError(f"{name} is no namespace of the lab")
    kill_and_wait(process_ids(name))
    done = subprocess.run(["ip", "netns", "delete", name], capture_output=True, text=True, check=False)
    if done.returncode and (NAMESPACE_DIRECTORY / name).exists():
        raise MachineError(f"cannot be removed: {done.stderr}", where=f"network namespace {name}")


def process_ids(name: str) -> list[int]:
    """The numbers of the processes in a namespace."""
    done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]
