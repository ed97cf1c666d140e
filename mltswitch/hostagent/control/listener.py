"""Accepts control channels on given addresses, and lets strangers cost little.

Only so many channels live at once, only so many of them are of strangers, and few of these from one address.
Beyond the first two numbers newcomers wait in the kernel's short queue, beyond the third they are closed.
A stranger is whoever has not been greeted (`ControlChannel.greeted`): one byte opens a channel in plain text,
and one key any number of them with TLS, but each name is greeted once. A channel that is not set up in time
ends by its own deadline, and one on which no peer introduces itself by its caller's; until then it costs a
socket and a few KiB, or what its caller keeps of what was said.
"""

import errno
import os
import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.control.channel import ChannelSettings, ControlChannel
from mltswitch.hostagent.control.security import Security, check_plaintext, stream_for
from mltswitch.hostagent.control.sockets import Endpoint, accept_next, endpoint_of, set_options
from mltswitch.hostagent.forks import not_in_children

BACKLOG: Final = 128
"""Connections that the kernel keeps for us while we are busy."""
ACCEPTED_AT_ONCE: Final = 32
"""Then the engine's other work has its turn."""
PAUSE_NS: Final = 100_000_000
"""After the machine had no descriptor or memory left for another connection."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of no time: close by a reset, which leaves nothing behind in the kernel."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What others can make us hold."""

    channels: int = 4096
    """Accepted and not ended yet."""
    setting_up: int = 256
    """Of them not open yet, or open and not greeted."""
    setting_up_per_address: int = 32
    """Of those from one IP address: several agents on one host, with room to spare."""


class ControlListener:
    """One listening socket; never blocks. Each channel that it accepts shakes hands by itself."""

    def __init__(
        self,
        local: Endpoint,
        security: Security,
        settings: ChannelSettings,
        limits: ListenerLimits | None = None,
    ) -> None:
        """Listen on this address alone.

        Raises:
            UserInputError: not an address of this machine, the one that means all of them, or plain text that
                would leave the machine.
            MachineError: the port is taken, or must not be ours.
        """
        if local.ip.is_unspecified:
            raise UserInputError(
                "means every network of this machine",
                where=str(local),
                expected="the address that the job's peers use",
            )
        check_plaintext(security, local)
        self._security, self._settings = security, settings
        self._limits = limits or ListenerLimits()
        self._channels: list[ControlChannel] = []
        self._paused_until_ns: int | None = None
        self._turned_away = 0
        self._socket = _listening(local, settings)

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        return self._socket.fileno()

    @property
    def local(self) -> Endpoint:
        """Where we listen; with the port that the kernel chose, where 0 was asked for."""
        return endpoint_of(self._socket.getsockname())

    @property
    def turned_away(self) -> int:
        """Connections closed at once, because too many of their address had not been greeted."""
        return self._turned_away

    @property
    def wants_read(self) -> bool:
        """Call `accept` when the socket can be read; ask again after channels were greeted or have ended."""
        return self._paused_until_ns is None and self._room() > 0

    def accept(self, now_ns: int) -> list[ControlChannel]:
        """New channels, to be driven by the caller, and `greeted` where a peer has said who it is.

        Raises:
            MachineError: the listening socket itself is broken.
        """
        if not self.wants_read:
            return []
        per_address = Counter(channel.remote.ip for channel in self._channels if channel.is_strange)
        accepted: list[ControlChannel] = []
        for _ in range(min(ACCEPTED_AT_ONCE, self._room())):
            try:
                newcomer = accept_next(self._socket)
            except OSError:
                self._paused_until_ns = now_ns + PAUSE_NS
                break
            if newcomer is None:
                break
            connection, remote = newcomer
            if per_address[remote.ip] >= self._limits.setting_up_per_address:
                self._turn_away(connection)
                continue
            per_address[remote.ip] += 1
            accepted.append(self._channel(connection, remote, now_ns))
        self._channels += accepted
        return accepted

    def next_timer_ns(self) -> int | None:
        """When to call `timer` at the latest; None: never."""
        return self._paused_until_ns

    def timer(self, now_ns: int) -> None:
        """After a pause, listen again."""
        if self._paused_until_ns is not None and now_ns >= self._paused_until_ns:
            self._paused_until_ns = None

    def close(self) -> None:
        """Stop listening; channels that were accepted stay the caller's."""
        self._socket.close()

    def _room(self) -> int:
        if len(self._channels) < min(self._limits.setting_up, self._limits.channels):
            return min(self._limits.setting_up, self._limits.channels) - len(self._channels)
        self._channels = [channel for channel in self._channels if not channel.has_ended]
        strangers = sum(channel.is_strange for channel in self._channels)
        return min(self._limits.setting_up - strangers, self._limits.channels - len(self._channels))

    def _channel(self, connection: socket.socket, remote: Endpoint, now_ns: int) -> ControlChannel:
        try:
            set_options(connection, self._settings.dscp)
            stream = stream_for(self._security, remote, None)
            return ControlChannel(connection, stream, remote, self._settings, now_ns, is_connecting=False)
        except BaseException:
            connection.close()
            raise

    def _turn_away(self, connection: socket.socket) -> None:
        self._turned_away += 1
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.close()


def _listening(local: Endpoint, settings: ChannelSettings) -> socket.socket:
    family, address = local.resolved()
    kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    listener = not_in_children(socket.socket(family, kind))
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        set_options(listener, settings.dscp)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserInputError("is not an address of this machine", where=str(local)) from None
        reason = os.strerror(error.errno or 0)
        raise MachineError(f"cannot listen there: {reason}", where=str(local)) from None
    except BaseException:
        listener.close()
        raise
    return listener
