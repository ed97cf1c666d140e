"""Whether an SSH server answers: its first line (RFC 4253, section 4.2), without logging in."""

import socket
from typing import Final

BANNER_SECONDS: Final = 10.0
"""A switch in user-mode-linux starts a process for each connection; on a busy machine that takes seconds."""
_MAXIMUM_BYTES: Final = 255


def answers_ssh(address: str, port: int) -> bool:
    """Whether an SSH banner comes within the time."""
    try:
        with socket.create_connection((address, port), timeout=BANNER_SECONDS) as connection:
            return connection.recv(_MAXIMUM_BYTES).startswith(b"SSH-2.0")
    except OSError:
        return False
