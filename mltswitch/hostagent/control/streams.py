"""What travels on a control channel, without the socket: bytes of the wire in, bytes of the peer out.

Over TLS 1.3 a client believes that it is connected before the server has looked at its certificate (RFC 8446,
section 2: the client's Finished is the last message). So the accepting side's first byte inside TLS is
`ACCEPTED` or `REFUSED`, and the connecting side says nothing before it. Whatever is wrong with either
certificate shows while the channel is set up, and no refusal is lost in the reset of a connection on which
more had been said.
"""

import ssl
from contextlib import suppress
from typing import Final, Protocol

from mltswitch.hostagent.control.identity import certified_name
from mltswitch.hostagent.control.refusals import (
    BEGINNING_BYTES,
    NO_TLS_HERE,
    TLS_HANDSHAKE,
    closed,
    is_plain_agent,
    not_plain,
    refusal,
)
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import AgentError, PeerRefusedError, PeerUnreachableError

ACCEPTED: Final = b"\x01"
REFUSED: Final = b"\x00"
"""The certificate holds, but not the name in it."""
MAXIMUM_HANDSHAKE_BYTES: Final = 128 * 1024
"""Received before a peer has proved who it is; a handshake with our certificates takes 3 KiB."""
_READ_BYTES: Final = 64 * 1024


class ControlStream(Protocol):
    """One end; an AgentError that it raises, or has in `ended`, is the end of it."""

    @property
    def is_open(self) -> bool:
        """Both ends have accepted each other."""
        ...

    @property
    def is_authenticated(self) -> bool:
        """The peer has proved its name."""
        ...

    @property
    def peer(self) -> str:
        """The peer's name: proved, expected until it is, or empty where nothing is known."""
        ...

    @property
    def ended(self) -> AgentError | None:
        """Why nothing more will come."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Sent by us, and not yet taken by `to_send`; what TLS adds counts, too."""
        ...

    @property
    def has_output(self) -> bool:
        """`to_send` has something to give now."""
        ...

    def received(self, data: bytes) -> bytes:
        """Bytes from the wire, cut anywhere; returns what the peer has said."""
        ...

    def received_end(self) -> None:
        """The peer's half of the connection has ended."""
        ...

    def send(self, data: bytes) -> None:
        """Say this, as soon as the stream is open."""
        ...

    def to_send(self) -> bytes:
        """Bytes for the wire; takes them."""
        ...

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        ...


class TlsStream:
    """Over TLS 1.3, with a certificate on both sides."""

    def __init__(self, identity: TlsIdentity, *, expected_peer: str | None, address: str) -> None:
        """Connecting to a peer of this name; None: accepting whoever the job's CA has signed for."""
        self._is_server = expected_peer is None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = identity.server if self._is_server else identity.client
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=self._is_server, server_hostname=expected_peer
        )
        self._expected, self._address = expected_peer, address
        self._certified: str | None = None
        self._is_open = False
        self._early = bytearray()
        self._beginning = b""
        self._handshake_bytes = 0
        self._ended: AgentError | None = None
        if not self._is_server:
            self.received(b"")  # a client speaks first

    @property
    def is_open(self) -> bool:
        """Both ends have accepted each other."""
        return self._is_open

    @property
    def is_authenticated(self) -> bool:
        """The peer has proved its name."""
        return self._certified is not None

    @property
    def peer(self) -> str:
        """The peer's name: proved, or expected until it is; empty before a stranger has proved one."""
        return self._certified or self._expected or ""

    @property
    def ended(self) -> AgentError | None:
        """Why nothing more will come."""
        return self._ended

    @property
    def waiting_bytes(self) -> int:
        """Sent by us, and not yet taken by `to_send`; what TLS adds counts, too."""
        return len(self._early) + self._outgoing.pending

    @property
    def has_output(self) -> bool:
        """`to_send` has something to give now; what was said early waits for the handshake."""
        return self._outgoing.pending > 0

    def received(self, data: bytes) -> bytes:
        """Bytes from the wire, cut anywhere; returns what the peer has said."""
        if self._ended is not None:
            return b""
        self._incoming.write(data)
        self._beginning += data[: BEGINNING_BYTES - len(self._beginning)]
        said = bytearray()
        try:
            if self._certified is None:
                self._handshake_bytes += len(data)
                self._tls.do_handshake()
                self._identify()
            while chunk := self._tls.read(_READ_BYTES):
                said += chunk if self._is_open else self._accepted(chunk)
            self._ended = PeerUnreachableError("has closed the control channel", peer=self._label)
        except ssl.SSLWantReadError:
            if not self._is_open and self._handshake_bytes > MAXIMUM_HANDSHAKE_BYTES:
                self._ended = PeerRefusedError("its TLS handshake does not end", peer=self._label)
        except ssl.SSLError as error:
            self._ended = refusal(error, self._label, self._beginning)
            if self._is_server and is_plain_agent(self._beginning):
                self._outgoing.write(NO_TLS_HERE)  # OpenSSL says nothing to who speaks no TLS
        except AgentError as error:
            self._ended = error
        return bytes(said)

    def received_end(self) -> None:
        """The peer's half of the connection has ended; without TLS's own farewell, it was cut off."""
        self._ended = self._ended or closed(self._label, is_open=self._is_open)

    def send(self, data: bytes) -> None:
        """Say this, as soon as the stream is open."""
        if self._is_open:
            self._encrypt(data)
        else:
            self._early += data

    def to_send(self) -> bytes:
        """Bytes for the wire; takes them."""
        return self._outgoing.read()

    def close(self) -> None:
        """Tell the peer that nothing more will come."""
        if self._is_open:
            with suppress(ssl.SSLError):  # it wants to read the peer's farewell, for which nobody waits
                self._tls.unwrap()

    @property
    def _label(self) -> str:
        return self.peer or self._address

    def _identify(self) -> None:
        name = certified_name(self._tls.getpeercert())
        if name is None or (self._expected is not None and name != self._expected):
            if self._is_server:
                self._encrypt(REFUSED)
            else:
                self._outgoing.read()  # neither our certificate nor a word is for it
            shown = "not exactly one host" if name is None else f"another host, {name}"
            raise PeerRefusedError(f"its certificate names {shown}", peer=self._label)
        self._certified = name
        if self._is_server:
            self._encrypt(ACCEPTED)
            self._open()

    def _accepted(self, chunk: bytes) -> bytes:
        if not chunk.startswith(ACCEPTED):
            raise PeerRefusedError("does not accept the host name in our certificate", peer=self._label)
        self._open()
        return chunk[len(ACCEPTED) :]

    def _open(self) -> None:
        self._is_open = True
        early, self._early = bytes(self._early), bytearray()
        self._encrypt(early)

    def _encrypt(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            raise refusal(error, self._label) from None


class PlainStream:
    """Plain text: the peer is whoever it claims to be. For loopback and laboratories."""

    is_authenticated: Final = False

    def __init__(self, *, claimed_peer: str | None, address: str) -> None:
        """Connecting to who is said to be this peer; None: accepting whoever speaks first."""
        self._claimed, self._address = claimed_peer or "", address
        self._is_open = self._is_connecting = claimed_peer is not None
        self._waiting = bytearray()
        self._last_words = b""
        self._beginning = b""
        self._ended: AgentError | None = None

    @property
    def is_open(self) -> bool:
        """The accepting end is open when the other has said something: whoever is silent is no peer."""
        return self._is_open

    @property
    def peer(self) -> str:
        """Whom we meant to connect to; empty where we accepted."""
        return self._claimed

    @property
    def ended(self) -> AgentError | None:
        """Why nothing more will come."""
        return self._ended

    @property
    def waiting_bytes(self) -> int:
        """Sent by us, and not yet taken by `to_send`."""
        return len(self._waiting)

    @property
    def has_output(self) -> bool:
        """`to_send` has something to give now."""
        return len(self._last_words) > 0 or (self._is_open and len(self._waiting) > 0)

    def received(self, data: bytes) -> bytes:
        """Bytes from the wire, as they are."""
        if self._ended is None and len(self._beginning) < BEGINNING_BYTES:
            self._beginning += data[: BEGINNING_BYTES - len(self._beginning)]
            self._ended = not_plain(self._beginning, self._label)
            if not self._is_connecting and self._beginning.startswith(TLS_HANDSHAKE):
                self._last_words = NO_TLS_HERE
        if self._ended is not None:
            return b""
        self._is_open = self._is_open or len(data) > 0
        return data

    def received_end(self) -> None:
        """The peer's half of the connection has ended."""
        was_there = self._is_open and len(self._beginning) > 0
        self._ended = self._ended or closed(self._label, is_open=was_there)

    def send(self, data: bytes) -> None:
        """Say this, as soon as the stream is open."""
        self._waiting += data

    def to_send(self) -> bytes:
        """Bytes for the wire; takes them."""
        data, self._last_words = self._last_words, b""
        if data or not self._is_open:
            return data
        data, self._waiting = bytes(self._waiting), bytearray()
        return data

    def close(self) -> None:
        """Plain text has no farewell but the end of the connection."""

    @property
    def _label(self) -> str:
        return self._claimed or self._address
