"""One SSH connection to an emulated device: authentication, shells and remote commands."""

import codecs
import contextlib
import hmac
import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_RESOURCE_SHORTAGE,
    OPEN_SUCCEEDED,
    cMSG_CHANNEL_SUCCESS,
)

from switchsim.device import Answer, CommandLine, CommandResult
from switchsim.faults import Accept, Drop, Late, Reboot, Refuse

if TYPE_CHECKING:
    from switchsim.ssh_server import EmulatorServer

MAX_CHANNELS: Final = 10
"""How many channels one SSH connection may have open at once, as sshd's MaxSessions."""
MAX_STDIN_BYTES: Final = 16 << 20
IDLE_SECONDS: Final = 600.0
HANDSHAKE_SECONDS: Final = 30.0

_READ_BYTES: Final = 1 << 16
_REPLY_SECONDS: Final = 5.0
"""How long a channel waits until its request is granted; a client that asks for no reply gets none."""
_LOG_NAME: Final = "switchsim.transport"


class _Transport(paramiko.Transport):
    """Says when a channel's request has been granted: the reply leaves only after the callback has returned.

    A client takes a channel that is closed before for one that failed.
    """

    def __init__(self, client: socket.socket) -> None:
        super().__init__(client)
        self.granted: defaultdict[int, threading.Event] = defaultdict(threading.Event)
        """By the client's number of the channel."""

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)  # type: ignore[misc]  # types-paramiko leaves it out
        sent = paramiko.Message(data.asbytes())
        if sent.get_byte() == cMSG_CHANNEL_SUCCESS:
            self.granted[sent.get_int()].set()


class Connection(paramiko.ServerInterface):
    """Authenticates one client and gives each of its channels a thread."""

    def __init__(self, server: "EmulatorServer", client: socket.socket) -> None:
        self._server = server
        self._client = client
        self._username = server.username
        self._lines = 0
        self._lock = threading.Lock()
        self._terminals: set[int] = set()
        self._channels: dict[int, threading.Thread | None] = {}
        self._transport: _Transport | None = None
        self._name = server.device.name
        self._thread = threading.Thread(target=self._run, name=f"{self._name} connection", daemon=True)

    def start(self) -> None:
        """Begin the handshake in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Close at once; the threads end on their own."""
        transport = self._transport
        if transport is not None:
            transport.close()
        self._client.close()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the connection's threads."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            # As sshd does for terminals: else what follows an echo waits 40 ms for its acknowledgement.
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = self._transport = _Transport(self._client)
            transport.set_log_channel(_LOG_NAME)
            transport.handshake_timeout = transport.auth_timeout = HANDSHAKE_SECONDS
            transport.add_server_key(self._server.host_key)
            transport.start_server(server=self)
            self._expect_authentication(transport)
            transport.join()
        except (paramiko.SSHException, OSError, EOFError) as error:
            logging.getLogger(_LOG_NAME).debug("connection to %s ended: %s", self._name, error)
        finally:
            self.close()
            for thread in filter(None, self._channels.values()):
                thread.join(HANDSHAKE_SECONDS)
            self._server.forget(self)

    @staticmethod
    def _expect_authentication(transport: paramiko.Transport) -> None:
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        while transport.is_active() and not transport.is_authenticated():
            if time.monotonic() > deadline:
                transport.close()
            time.sleep(0.05)

    # --- the callbacks of paramiko.ServerInterface -------------------------------------------------------

    def get_allowed_auths(self, username: str) -> str:
        """The authentication methods: public keys, and passwords where the server has one."""
        del username
        return "publickey" if self._server.password is None else "publickey,password"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """Accept the device's user with an authorized key."""
        known = username == self._username and key.asbytes() in self._server.authorized_keys
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        """Accept the device's user with the server's password."""
        expected = self._server.password
        if expected is None or username != self._username:
            return AUTH_FAILED
        return AUTH_SUCCESSFUL if hmac.compare_digest(password.encode(), expected.encode()) else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Open session channels only: there is no forwarding, and no SFTP."""
        if kind != "session":
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        with self._lock:
            busy = sum(thread is None or thread.is_alive() for thread in self._channels.values())
            if busy >= MAX_CHANNELS:
                return OPEN_FAILED_RESOURCE_SHORTAGE
            self._channels[chanid] = None
        return OPEN_SUCCEEDED

    def check_channel_pty_request(
        self,
        channel: paramiko.Channel,
        term: bytes,
        width: int,
        height: int,
        pixelwidth: int,
        pixelheight: int,
        modes: bytes,
    ) -> bool:
        """Accept every terminal that a client asks for."""
        del term, width, height, pixelwidth, pixelheight, modes
        self._terminals.add(channel.get_id())
        return True

    def check_channel_window_change_request(
        self, channel: paramiko.Channel, width: int, height: int, pixelwidth: int, pixelheight: int
    ) -> bool:
        """Accept every window size, which has no effect: there is no paging."""
        del channel, width, height, pixelwidth, pixelheight
        return True

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        """Start an interactive session."""
        return self._start(channel, None)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Start one remote command."""
        return self._start(channel, command.decode("utf-8", "replace"))

    def _start(self, channel: paramiko.Channel, command: str | None) -> bool:
        identity = channel.get_id()
        with self._lock:
            if self._channels.get(identity) is not None:
                return False
            thread = threading.Thread(
                target=self._serve,
                args=(channel, command),
                name=f"{self._server.device.name} channel",
                daemon=True,
            )
            self._channels[identity] = thread
        assert self._transport is not None  # noqa: S101  (its thread calls this)
        self._transport.granted[channel.remote_chanid].clear()
        thread.start()
        return True

    # --- one channel, in its thread ----------------------------------------------------------------------

    def _serve(self, channel: paramiko.Channel, command: str | None) -> None:
        assert self._transport is not None  # noqa: S101  (it made the channel)
        self._transport.granted[channel.remote_chanid].wait(_REPLY_SECONDS)
        channel.settimeout(IDLE_SECONDS)
        try:
            if command is None:
                self._serve_shell(channel)
            else:
                self._serve_command(channel, command)
        except (OSError, EOFError, paramiko.SSHException) as error:
            logging.getLogger(_LOG_NAME).debug("channel of %s ended: %s", self._name, error)
        finally:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the peer has gone already
                channel.close()

    def _serve_shell(self, channel: paramiko.Channel) -> None:
        has_terminal = channel.get_id() in self._terminals
        session = self._server.device.open_session(self._username)
        editor = LineEditor()

        shown = [session.prompt] if has_terminal else []
        is_over = False

        def flush() -> None:
            text = "".join(shown)
            shown.clear()
            channel.sendall((text.replace("\n", "\r\n") if has_terminal else text).encode())

        flush()
        while not is_over and (data := channel.recv(_READ_BYTES)):
            for event in editor.feed(data):
                match event:
                    case Echo(text) if has_terminal:
                        shown.append(text)
                    case Line(text):
                        flush()  # what the line prints comes after its echo, also if it ends the connection
                        answer = self._deliver(session, text)
                        shown.append(answer.text)
                        is_over = answer.closes
                        if has_terminal and not is_over:
                            shown.append(session.prompt)
                    case EndOfInput():
                        is_over = True
                if is_over:
                    break
            flush()
        channel.send_exit_status(0)

    def _deliver(self, session: CommandLine, line: str) -> Answer:
        fault = self._fault(line)
        return session.enter(line) if fault is None else Answer(fault.stderr.decode())

    def _serve_command(self, channel: paramiko.Channel, command: str) -> None:
        processes = self._server.device.processes
        processes.append(command)
        try:
            result = self._fault(command)
            if result is None:
                result = self._server.device.execute(self._username, command, lambda: _read_all(channel))
        finally:
            processes.remove(command)
        if result is None:
            result = CommandResult(stderr=b"This switch runs no remote commands [emulator]\n", status=1)
        channel.sendall(result.stdout)
        channel.sendall_stderr(result.stderr)
        channel.send_exit_status(result.status)

    def _fault(self, line: str) -> CommandResult | None:
        """What an injected fault answers; one that ends the connection raises OSError."""
        with self._lock:
            self._lines += 1
            fault = self._server.faults.on_line(self._lines, line)
        match fault:
            case None:
                return None
            case Accept():
                return CommandResult()
            case Late(seconds):
                time.sleep(seconds)
                return None
            case Drop():
                self.close()
            case Reboot():
                self._server.reboot()
            case Refuse(text):
                return CommandResult(stderr=f"{text.rstrip()}\n".encode(), status=1)
        raise ConnectionResetError("ended by a fault that a test injected")


def _read_all(channel: paramiko.Channel) -> bytes:
    """Standard input up to its end; what is longer than MAX_STDIN_BYTES ends the channel."""
    chunks: list[bytes] = []
    length = 0
    while chunk := channel.recv(_READ_BYTES):
        length += len(chunk)
        if length > MAX_STDIN_BYTES:
            raise ConnectionAbortedError(f"more than {MAX_STDIN_BYTES} B of standard input")
        chunks.append(chunk)
    return b"".join(chunks)


MAX_LINE_CHARACTERS: Final = 4096
"""The longest line that can be typed; the rest is lost, with a bell, as on a Linux terminal."""

_CONTROL_C: Final = "\x03"
_CONTROL_D: Final = "\x04"
_CONTROL_U: Final = "\x15"
_ESCAPE: Final = "\x1b"


@dataclass(frozen=True, slots=True)
class Echo:
    """Characters to show on the peer's terminal."""

    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One finished line, without its end."""

    text: str


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The user has pressed Control-D on an empty line."""


EditorEvent = Echo | Line | EndOfInput


class LineEditor:
    """Collects characters into lines; CR, LF and CR LF each end one line.

    Backspace removes a character, control-U and control-C the whole line; escape sequences and other control
    characters are dropped. Fed whole or byte by byte, the same bytes give the same lines.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters: list[str] = []
        self._after_carriage_return = False
        self._escape = ""

    def feed(self, data: bytes) -> Iterator[EditorEvent]:
        """The events that these bytes cause, in the order in which they belong on the terminal."""
        for character in self._decoder.decode(data):
            yield from self._accept(character)

    def _accept(self, character: str) -> Iterator[EditorEvent]:
        is_second_half = character == "\n" and self._after_carriage_return
        self._after_carriage_return = character == "\r"
        if self._escape:
            self._swallow_escape(character)
        elif character == _ESCAPE:
            self._escape = character
        elif character in "\r\n":
            if not is_second_half:
                yield from self._finish()
        elif character in "\b\x7f":
            if self._characters:
                self._characters.pop()
                yield Echo("\b \b")
        elif character == _CONTROL_U:
            yield Echo("\b \b" * len(self._characters))
            self._characters.clear()
        elif character == _CONTROL_C:
            self._characters.clear()
            yield Echo("^C")
            yield from self._finish()
        elif character == _CONTROL_D:
            if not self._characters:
                yield EndOfInput()
        elif character.isprintable():
            yield self._insert(character)

    def _swallow_escape(self, character: str) -> None:
        """ESC [ parameters final, or ESC and one character (ECMA-48, section 5.4)."""
        if self._escape == _ESCAPE and character == "[":
            self._escape += character
        elif len(self._escape) == 1 or "@" <= character <= "~":
            self._escape = ""

    def _insert(self, character: str) -> Echo:
        if len(self._characters) >= MAX_LINE_CHARACTERS:
            return Echo("\a")
        self._characters.append(character)
        return Echo(character)

    def _finish(self) -> Iterator[EditorEvent]:
        line = "".join(self._characters)
        self._characters.clear()
        yield Echo("\n")
        yield Line(line)
