"""Commands handed into a rootless lab through files that both kernels see, because no socket crosses.

Each request is one file; the server answers with a growing output file per stream and, last, an exit code.
"""

import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from mltswitch.errors import MachineError

POLL_SECONDS: Final = 0.03
MAXIMUM_REQUEST_BYTES: Final = 1 << 20
NOT_RUN: Final = 127
"""Exit code for a command that cannot be started, as in a shell."""

_CHUNK_BYTES: Final = 1 << 16
_PASSED_ON: Final = ("PATH", "TERM", "LANG", "LC_ALL", "COLUMNS", "NO_COLOR")


@dataclass(frozen=True, slots=True)
class Request:
    """A command for the rootless lab: its arguments, working directory and the few variables it may see."""

    argv: list[str]
    directory: str
    environment: dict[str, str]


def submit(
    spool: Path, argv: Sequence[str], *, alive: Callable[[], bool], out: IO[bytes], err: IO[bytes]
) -> int:
    """Run a command inside the rootless lab, copying its output as it comes; returns its exit code.

    Raises MachineError when the lab's instance has ended.
    """
    name = secrets.token_hex(8)
    environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    request = Request(list(argv), str(Path.cwd()), environment)
    _write(spool / f"{name}.request", json.dumps(asdict(request)).encode())
    exit_file = spool / f"{name}.exit"
    read = {spool / f"{name}.out": (out, 0), spool / f"{name}.err": (err, 0)}
    try:
        while True:
            ended = exit_file.exists()
            for file, (stream, offset) in read.items():
                read[file] = (stream, offset + _copy_from(file, offset, stream))
            if ended:
                return int(exit_file.read_text(encoding="ascii"))
            if not alive():
                raise MachineError("user-mode-linux has ended", hint="run `mltswitch lab down`, then `up`")
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        _write(spool / f"{name}.cancel", b"")
        raise
    finally:
        for file in (*read, exit_file):
            file.unlink(missing_ok=True)


def serve(spool: Path) -> None:
    """Run the commands handed into a rootless lab, each in a thread, without end."""
    while True:
        for file in sorted(spool.glob("*.request")):
            base = file.with_suffix("")
            try:
                request = _read(file)
            except (ValueError, TypeError, RecursionError) as error:
                _refuse(base, f"the command cannot be understood: {error}")
            else:
                threading.Thread(target=_execute, args=(base, request), daemon=True).start()
            file.unlink()
        time.sleep(POLL_SECONDS)


def _read(file: Path) -> Request:
    if file.stat().st_size > MAXIMUM_REQUEST_BYTES:
        raise ValueError(f"it is longer than {MAXIMUM_REQUEST_BYTES} bytes")
    return Request(**json.loads(file.read_bytes()))


def _refuse(base: Path, reason: str) -> None:
    _write(base.with_suffix(".err"), f"{reason}\n".encode(errors="replace"))
    _write(base.with_suffix(".exit"), str(NOT_RUN).encode())


def _execute(base: Path, request: Request) -> None:
    try:
        process = subprocess.Popen(
            request.argv,
            cwd=request.directory,
            env={**os.environ, **request.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        _refuse(base, f"{request.argv[0]}: {error.strerror}")
        return
    except (ValueError, TypeError, LookupError) as error:
        _refuse(base, f"the command cannot be started: {error}")
        return
    copies = [
        threading.Thread(target=_copy_to, args=(stream, base.with_suffix(suffix)), daemon=True)
        for stream, suffix in ((process.stdout, ".out"), (process.stderr, ".err"))
    ]
    for copy in copies:
        copy.start()
    cancel = base.with_suffix(".cancel")
    while process.poll() is None:
        if cancel.exists():
            os.killpg(process.pid, signal.SIGINT)
            cancel.unlink()
        time.sleep(POLL_SECONDS)
    for copy in copies:
        copy.join()
    code = process.returncode
    _write(base.with_suffix(".exit"), str(code if code >= 0 else 128 - code).encode())


def _copy_to(stream: IO[bytes], file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        while data := os.read(stream.fileno(), _CHUNK_BYTES):
            os.write(descriptor, data)
            os.fsync(descriptor)  # this kernel's page cache is not the other's
    finally:
        os.close(descriptor)


def _copy_from(file: Path, offset: int, stream: IO[bytes]) -> int:
    try:
        with file.open("rb") as source:
            source.seek(offset)
            data = source.read()
    except FileNotFoundError:
        return 0
    if data:
        stream.write(data)
        stream.flush()
    return len(data)


def _write(file: Path, data: bytes) -> None:
    """Write a file as a whole: its name appears when the content is there, on both sides."""
    temporary = file.with_name(f"{file.name}.partial")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(file)
