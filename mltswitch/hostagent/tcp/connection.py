"""All transfers with one peer over TCP; a state machine that is told the time.

Messages on the control channel are those of `mlt`, but for probes and bitmaps: READY lets a tensor leave,
STOP says that all of it is there. Data connections are somebody else's: they ask for frames, and hand in
bytes.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar

from mltswitch.hostagent.errors import AgentError, ProtocolViolationError
from mltswitch.hostagent.tagging import AllImportant
from mltswitch.hostagent.tcp.frames import encode_opening, is_for, is_genuine
from mltswitch.hostagent.tcp.receiving import FrameReader, TcpInbox
from mltswitch.hostagent.tcp.sending import Frame, TcpOutbox
from mltswitch.hostagent.tcp.settings import LEAST_CHUNK_BYTES
from mltswitch.hostagent.transport.compiled import Taken
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram, DatagramGrid
from mltswitch.hostagent.transport.hello import LocalEnd, PeerHello, Secrets
from mltswitch.hostagent.transport.inbox import Inbox
from mltswitch.hostagent.transport.interfaces import Outgoing
from mltswitch.hostagent.transport.messages import Goodbye
from mltswitch.hostagent.transport.outbox import Outbox
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import Dscp, WireFormatError


class KernelPaced:
    """The rate is TCP's business."""

    rate_bps = inf
    is_highest = True

    def acknowledged(self, round_trip_ns: int, now_ns: int) -> None:
        """Not looked at."""

    def base_measured(self, round_trip_ns: int, now_ns: int) -> None:
        """Not looked at."""


class TcpConnection(Connection):
    """One peer; raises `AgentError` where a caller asks for what cannot be."""

    outbox_type: ClassVar[type[Outbox]] = TcpOutbox
    inbox_type: ClassVar[type[Inbox]] = TcpInbox
    _outbox: TcpOutbox
    _inbox: TcpInbox

    def __init__(self, settings: ConnectionSettings, local: LocalEnd, secrets: Secrets, now_ns: int) -> None:
        super().__init__(settings, local, secrets, lambda _: None, KernelPaced(), now_ns)

    def send(self, transfer: Outgoing, now_ns: int) -> None:
        """Post a tensor; nothing of it is more important than the rest, because nothing is lost."""
        super().send(replace(transfer, policy=AllImportant()), now_ns)

    # Data connections

    @property
    def opening(self) -> bytes:
        """The first bytes of a data connection to the peer, once it has said hello."""
        peer = self.peer
        assert peer is not None  # noqa: S101  (callers ask after its HELLO)
        return encode_opening(peer.token, self._exchange.send_key)

    def is_for_us(self, opening: bytes) -> bool:
        """Whether a data connection names this one; `is_genuine` says whether it may."""
        return is_for(opening, self.receive_token)

    def is_genuine(self, opening: bytes) -> bool:
        """Whether its tag is right; only after the peer's HELLO."""
        return is_genuine(opening, self._exchange.secrets.key if self.authenticates else None)

    @property
    def peer_name(self) -> str:
        """Empty before its HELLO."""
        return self._exchange.peer_name

    @property
    def control_dscp(self) -> Dscp:
        """Of what is no tensor."""
        return self._exchange.local.control_dscp

    @property
    def authenticates(self) -> bool:
        """Whether data connections prove themselves, if either end asks for it; after the peer's HELLO."""
        return self._exchange.authenticates

    @property
    def has_frames(self) -> bool:
        """Whether a data connection that has room should ask for a frame."""
        return self._error is None and self._outbox.has_frames

    def next_frame(self, now_ns: int) -> Frame | None:
        """The next chunk for any data connection; None: nothing may leave."""
        if self._error is not None:
            return None
        self._exchange.now_ns = now_ns
        return self._outbox.next_frame(now_ns)

    def reader(self) -> FrameReader:
        """Of a new data connection from the peer, after its HELLO."""
        return FrameReader(self._inbox, self._exchange.element_bytes)

    def received(self, reader: FrameReader, size_bytes: int, now_ns: int) -> None:
        """Bytes of the peer's lie in the reader's spaces; what makes no sense ends the connection."""
        if self._error is not None:
            return
        self._exchange.now_ns = self._heard_ns = now_ns
        try:
            reader.filled(size_bytes, now_ns)
        except (WireFormatError, ProtocolViolationError) as error:
            self._violated(error, now_ns)

    def broken(self, error: AgentError, farewell: str, now_ns: int) -> None:
        """Without its data connections there is no connection: every open transfer ends with the error."""
        if self._error is None:
            self._exchange.now_ns = now_ns
            self._exchange.say(Goodbye(farewell))
            self._end(error, now_ns)

    # There are no datagrams

    def datagrams_read(
        self,
        grids: Sequence[DatagramGrid],
        taken: Taken,  # noqa: ARG002  (there is nothing)
        now_ns: int,  # noqa: ARG002  (it is nobody's)
    ) -> None:
        """Counts them as dropped."""
        self.dropped_datagrams += sum(grid.datagram_count for grid in grids)

    def bursts(self, now_ns: int, maximum_packets: int) -> Bursts | None:  # noqa: ARG002  (there are none)
        """None."""
        return None

    def datagrams_to_send(self, now_ns: int) -> list[Datagram]:  # noqa: ARG002  (there are none)
        """None."""
        return []

    def _greeted(self, hello: PeerHello, now_ns: int) -> None:
        if hello.transport == self._exchange.local.transport and hello.chunk_bytes < LEAST_CHUNK_BYTES:
            raise ProtocolViolationError(f"hello: chunks of {hello.chunk_bytes} bytes")
        super()._greeted(hello, now_ns)
