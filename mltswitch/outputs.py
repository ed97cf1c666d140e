"""Writing files: all of them or none, and no output of a command over one of its inputs or through a link."""

import os
import resource
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.inputs import is_input

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
HIDDEN: Final = ".mltswitch-"
"""Prefix of the hidden name of a file that is written beside its place."""
INPUT_REPLACED: Final = "would be overwritten, and is an input of this command"


def check_output(path: Path, *, replaces: Path | None = None) -> None:
    """Refuse an output that cannot be written, before long work is done for it.

    Args:
        path: named by the user.
        replaces: the one input that may be overwritten.

    Raises:
        UserInputError: no folder, no permission, a link, no regular file, or an input of this command.
    """
    with _writing(path):
        if not path.parent.is_dir():
            raise UserInputError("cannot be written: no such folder", where=str(path))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise UserInputError("cannot be written: its folder is read-only", where=str(path))
        try:
            found = path.lstat()
        except FileNotFoundError:
            return
        if stat.S_ISLNK(found.st_mode):
            raise UserInputError(
                f"is a link to {path.readlink()}, which is not followed",
                where=str(path),
                expected="a regular file, or a name that is free",
            )
        if not stat.S_ISREG(found.st_mode):
            raise UserInputError("is no regular file", where=str(path))
        if is_input(found) and (replaces is None or not path.samefile(replaces)):
            raise UserInputError(INPUT_REPLACED, where=str(path), expected="another name for the output")


def write_outputs(files: Iterable[tuple[Path, str]], *, replaces: Path | None = None) -> None:
    """Write files that a user named, all or none, after `check_output` of each."""
    texts = list(files)
    for path, _ in texts:
        check_output(path, replaces=replaces)
    write_together(texts)


def write_atomically(path: Path, text: str) -> None:
    """Write the whole file or nothing; raises UserInputError when it cannot be written."""
    write_together([(path, text)])


def write_together(files: Iterable[tuple[Path, str]], *, within: Path | None = None) -> None:
    """Write all files or none: every text is on the disk before the first one takes its place.

    Until then a text lies under a hidden name beside its place, which only a killed process leaves behind. A
    replaced file keeps its permissions. `files` is read one by one, each after the former text is on the
    disk, so that one text at a time is in memory; an error in it leaves no file, too.

    Args:
        files: Path and text of each file.
        within: The folder that all files lie in or below. It and those below are made where they are missing,
            and links below it are refused. Without it, a link is followed.

    Raises:
        UserInputError: naming the file that cannot be written, or that is no regular file.
    """
    made: list[Path] = []
    with ExitStack() as stack:
        stack.enter_context(_many_descriptors())
        folders: dict[Path, int] = {}
        staged: list[tuple[Path, str, str, int]] = []
        try:
            for path, text in files:
                with _writing(path):
                    target = Path(os.path.realpath(path)) if within is None else path
                    if target.parent not in folders:
                        folders[target.parent] = _open_folder(target.parent, within, made)
                        stack.callback(os.close, folders[target.parent])
                    above = folders[target.parent]
                    mode = _permissions(path, above, target.name, is_output=within is not None)
                    staged.append((path, _stage(text, mode, above, stack), target.name, above))
            for path, hidden, name, folder in staged:
                with _writing(path):
                    os.replace(hidden, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            stack.close()
            for made_folder in reversed(made):
                with suppress(OSError):  # somebody else's files lie in it by now
                    made_folder.rmdir()
            raise


def _open_folder(folder: Path, within: Path | None, made: list[Path]) -> int:
    """Descriptor of a folder; those that had to be made for it are added to `made`."""
    if within is None:
        return os.open(folder, _FOLDER)
    for missing in reversed([step for step in (within, *within.parents) if not step.exists()]):
        missing.mkdir()
        made.append(missing)
    descriptor = os.open(within, _FOLDER)
    for step in folder.relative_to(within).parts:
        above, within = descriptor, within / step
        try:
            with suppress(FileExistsError):
                os.mkdir(step, dir_fd=above)
                made.append(within)
            descriptor = os.open(step, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        except NotADirectoryError:
            raise UserInputError(
                "is no folder, or a link, which is not followed", where=str(within)
            ) from None
        finally:
            os.close(above)
    return descriptor


def _stage(text: str, permissions: int | None, folder: int, stack: ExitStack) -> str:
    """Put a text on the disk; returns its hidden name in the folder, which leaving the stack removes."""
    hidden = f"{HIDDEN}{secrets.token_hex(8)}"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    # Nobody reads a text who may not read the file whose place it takes.
    descriptor = os.open(hidden, flags, 0o666 if permissions is None else 0o600, dir_fd=folder)
    stack.callback(_remove, hidden, folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        if permissions is not None:
            os.fchmod(descriptor, permissions)
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    return hidden


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _many_descriptors() -> Iterator[None]:
    """As many open files as this process may have: a fabric has thousands."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def _permissions(path: Path, folder: int, name: str, *, is_output: bool) -> int | None:
    """Of the file that stands there; None when there is none yet. No output takes the place of an input."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise UserInputError("is no regular file", where=str(path))
    if is_output and is_input(found):
        raise UserInputError(INPUT_REPLACED, where=str(path), expected="another name for the output")
    return stat.S_IMODE(found.st_mode)
