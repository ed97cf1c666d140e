"""The lab's state directory: which file lies where, and how all of them are removed."""

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
    """Refuse a path that root's shell, mount(8) or a kernel's command line would read as more than a path.

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
    """Paths below one state directory; nothing of it is ever committed."""

    root: Path

    @property
    def state(self) -> Path:
        """What `up` is about to create; written first."""
        return self.root / "state.json"

    @property
    def private_key(self) -> Path:
        """The user's key, accepted by every device."""
        return self.root / "keys" / "id_ed25519"

    @property
    def authorized_keys(self) -> Path:
        """The public half of the user's key."""
        return self.root / "keys" / "id_ed25519.pub"

    @property
    def host_keys(self) -> Path:
        """One host key per device, named like it."""
        return self.root / "keys" / "hosts"

    @property
    def known_hosts(self) -> Path:
        """For the SSH clients on this side."""
        return self.root / "known_hosts"

    @property
    def logs(self) -> Path:
        """Output of everything that runs; kept when `up` fails."""
        return self.root / "logs"

    @property
    def processes(self) -> Path:
        """Identities of started processes."""
        return self.root / "processes"

    @property
    def work(self) -> Path:
        """Generated scripts and configuration."""
        return self.root / "work"

    @property
    def spool(self) -> Path:
        """Commands handed to a rootless lab, and their output."""
        return self.root / "spool"

    @property
    def inside(self) -> Path:
        """The folder that takes the place of this state directory inside a rootless lab."""
        return self.root / "inside"

    def create(self) -> None:
        """Make the directories for their owner only; raises UserInputError."""
        check_plain(self.root, "the lab's state directory")
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.host_keys.parent, self.host_keys, self.logs, self.processes, self.work):
                folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserInputError(f"cannot be created: {error.strerror}", where=str(self.root)) from None

    def remove(self, *, keep_logs: bool = False) -> None:
        """Remove what the lab made, state last, and the directory when nothing else lies in it."""
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
