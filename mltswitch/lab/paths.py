"""The lab's state directory: the path of each file, and the removal of all of them."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.outputs import HIDDEN

_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._+-]+")
_STACK_DUMP: Final = re.compile(r"\s*(\[<[0-9a-f]+>\]|[0-9a-f]{8}( |$)|Stack:|Call Trace:)")


def check_plain(path: Path, what: str) -> None:
    """Refuse a path that root's shell, mount(8) or a kernel's command line would not take literally.

    Raises UserInputError.
    """
    if _PLAIN_PATH.fullmatch(str(path)) is None:
        raise UserInputError(
            f"{what} has a path that no script can hold",
            where=ascii(str(path)),
            expected="letters and digits of ASCII, '/', '.', '_', '+' and '-'",
        )


@dataclass(frozen=True, slots=True)
class LabPaths:
    """Paths of the files in a lab's state directory, which is never committed."""

    root: Path

    @property
    def state(self) -> Path:
        """state.json: what `up` is about to create, written before anything else."""
        return self.root / "state.json"

    @property
    def private_key(self) -> Path:
        """The user's private SSH key, which every device accepts."""
        return self.root / "keys" / "id_ed25519"

    @property
    def authorized_keys(self) -> Path:
        """The public half of the user's key."""
        return self.root / "keys" / "id_ed25519.pub"

    @property
    def host_keys(self) -> Path:
        """Folder of the SSH host keys, one for each device and named like it."""
        return self.root / "keys" / "hosts"

    @property
    def known_hosts(self) -> Path:
        """The known_hosts file for SSH clients outside the lab."""
        return self.root / "known_hosts"

    @property
    def logs(self) -> Path:
        """Folder with the output of all programs of the lab; kept when `up` fails."""
        return self.root / "logs"

    @property
    def processes(self) -> Path:
        """Folder with the identities of started processes."""
        return self.root / "processes"

    @property
    def work(self) -> Path:
        """Folder of generated scripts and configuration."""
        return self.root / "work"

    @property
    def spool(self) -> Path:
        """Folder of commands handed to a rootless lab, and of their output."""
        return self.root / "spool"

    @property
    def inside(self) -> Path:
        """The folder that takes the place of this state directory inside a rootless lab."""
        return self.root / "inside"

    def create(self) -> None:
        """Make the state directory and its folders, accessible to their owner only; raises UserInputError."""
        check_plain(self.root, "the lab's state directory")
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.host_keys.parent, self.host_keys, self.logs, self.processes, self.work):
                folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserInputError(f"cannot be created: {error.strerror}", where=str(self.root)) from None

    def remove(self, *, keep_logs: bool = False) -> None:
        """Remove the lab's files, state.json last, and the state directory if nothing else lies in it."""
        folders = [self.host_keys.parent, self.processes, self.work, self.spool, self.inside]
        for folder in folders if keep_logs else [*folders, self.logs]:
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.known_hosts, self.state, *self.root.glob(f"{HIDDEN}*")):
            file.unlink(missing_ok=True)
        if self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()

    def forget_logs(self) -> None:
        """Remove the logs of an `up` that failed earlier, or of a lab that was told to keep them."""
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(mode=0o700)

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of each log, for an error's text, without a kernel's stack dump."""
        tails = []
        for log in sorted(self.logs.glob("*.log")):
            text = log.read_text(encoding="utf-8", errors="replace").splitlines()
            told = [line.strip() for line in text if line.strip() and not _STACK_DUMP.match(line)]
            tails += [f"{log.name}: {line}" for line in told[-lines:]]
        return " | ".join(tails)
