"""Whether a device's server answers, without logging in."""

import socket
from typing import Final

from mltswitch.lab.model import BMV2_PLATFORM

ANSWER_SECONDS: Final = 60.0
"""A switch in user-mode-linux starts a process for each connection; on a busy machine that takes seconds."""

_MAXIMUM_BANNER_BYTES: Final = 255
_EMPTY_SETTINGS: Final = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HTTP2_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _EMPTY_SETTINGS
_FRAME_TYPE: Final = 3
_SETTINGS_TYPE: Final = 4


def answers(platform: str, address: str, port: int) -> bool:
    """Whether the server that such a device has answers there within the time."""
    ask = answers_grpc if platform == BMV2_PLATFORM else answers_ssh
    return ask(address, port)


def answers_ssh(address: str, port: int) -> bool:
    """Whether an SSH banner comes (RFC 4253, section 4.2)."""
    try:
        with socket.create_connection((address, port), timeout=ANSWER_SECONDS) as connection:
            return connection.recv(_MAXIMUM_BANNER_BYTES).startswith(b"SSH-2.0")
    except OSError:
        return False


def answers_grpc(address: str, port: int) -> bool:
    """Whether a server of HTTP/2, below gRPC, greets back: its first frame is SETTINGS (RFC 9113, 3.4)."""
    try:
        with socket.create_connection((address, port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(_HTTP2_GREETING)
            head = connection.recv(len(_EMPTY_SETTINGS), socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == len(_EMPTY_SETTINGS) and head[_FRAME_TYPE] == _SETTINGS_TYPE
