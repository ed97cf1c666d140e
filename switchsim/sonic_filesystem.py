"""The files of an emulated SONiC switch: in memory, a few folders, limited in number and size."""

import posixpath
from typing import Final

MAX_TOTAL_BYTES: Final = 64 << 20
MAX_FILES: Final = 256
HOME: Final = "/home/admin"

_OPEN_FOLDERS: Final = ("/tmp", "/var/tmp", HOME)  # noqa: S108 (names inside the emulator, not on this machine)
_ROOT_FOLDERS: Final = ("/etc/sonic", "/etc/sonic/checkpoints", "/root")


class FileError(Exception):
    """A file operation failed; the text is strerror's."""


class Filesystem:
    """Absolute path → contents."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def paths(self, folder: str) -> list[str]:
        """Files right inside a folder, sorted."""
        return sorted(path for path in self._files if posixpath.dirname(path) == folder)

    def exists(self, path: str) -> bool:
        """Whether it is a file."""
        return self._absolute(path) in self._files

    def read(self, path: str) -> bytes:
        """Contents; raises FileError."""
        absolute = self._absolute(path)
        if absolute in _OPEN_FOLDERS + _ROOT_FOLDERS:
            raise FileError("Is a directory")
        try:
            return self._files[absolute]
        except KeyError:
            raise FileError("No such file or directory") from None

    def write(self, path: str, contents: bytes, *, as_root: bool) -> None:
        """Replace or create a file; raises FileError."""
        absolute = self._writable(path, as_root=as_root)
        others = sum(len(kept) for name, kept in self._files.items() if name != absolute)
        is_new = absolute not in self._files
        if others + len(contents) > MAX_TOTAL_BYTES or (is_new and len(self._files) >= MAX_FILES):
            raise FileError("No space left on device")
        self._files[absolute] = contents

    def remove(self, path: str, *, as_root: bool) -> None:
        """Remove a file; raises FileError."""
        absolute = self._writable(path, as_root=as_root)
        if absolute not in self._files:
            raise FileError("No such file or directory")
        del self._files[absolute]

    @staticmethod
    def _absolute(path: str) -> str:
        return posixpath.normpath(posixpath.join(HOME, path))

    def _writable(self, path: str, *, as_root: bool) -> str:
        absolute = self._absolute(path)
        folder = posixpath.dirname(absolute)
        if absolute in _OPEN_FOLDERS + _ROOT_FOLDERS:
            raise FileError("Is a directory")
        if folder not in _OPEN_FOLDERS + _ROOT_FOLDERS:
            raise FileError("No such file or directory")
        if folder in _ROOT_FOLDERS and not as_root:
            raise FileError("Permission denied")
        return absolute
