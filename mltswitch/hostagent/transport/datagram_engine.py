"""A transport over datagrams: flows of the agent's data plane, all set up in one way.

`mlt` and `ltp` are such transports; posts and results are in datagram_flow.py.
"""

import secrets
from ipaddress import ip_address
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.hostagent.dataplane.binding import DataPlaneError, Fields, lib
from mltswitch.hostagent.errors import PeerBusyError, PeerRefusedError
from mltswitch.hostagent.protocol.frames import first_problem, text
from mltswitch.hostagent.spraying.shares import Policy
from mltswitch.hostagent.transport.datagram_flow import CONTROL_LAWS, ECT, DatagramConnection
from mltswitch.hostagent.transport.datagram_plane import plane_of
from mltswitch.hostagent.transport.datagram_settings import DatagramSettings
from mltswitch.hostagent.transport.host import TransportHost
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES

MOST_WINDOW_BYTES: Final = 1 << 30
KEY_BYTES: Final = 16
SALT_BYTES: Final = 4


class _PathOffer(BaseModel):
    address: str
    port: Annotated[int, Field(gt=0, lt=1 << 16)]


class _Offer(BaseModel):
    """What the peer needs in order to send to us."""

    model_config = ConfigDict(extra="ignore")

    token: Annotated[int, Field(ge=0, lt=1 << 64)]
    paths: Annotated[list[_PathOffer], Field(min_length=1, max_length=64)]
    datagram_bytes: Annotated[int, Field(ge=256, le=65_000)]
    window_bytes: Annotated[int, Field(ge=4096, le=1 << 31)]
    authenticate: bool
    credit: bool = False
    """Whether the peer grants credit, and sends by ours where we do, too."""
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", repr=False)]
    """With which the peer tags what it sends to us."""
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$", repr=False)]


class DatagramEngine:
    """An agent's end of one transport over datagrams.

    Args:
        host: the agent, as its transports see it.
        name: name of the transport, and of its section in the agent's file.
        at_once: whether acknowledgements name packets, so that each loss is repaired at once; else the sender
            asks after each pass over a tensor which packets are missing.
    """

    def __init__(self, host: TransportHost, name: str, *, at_once: bool) -> None:
        settings = host.config.section(name)
        assert isinstance(settings, DatagramSettings)  # noqa: S101  (it is our own section)
        self.host, self.name, self.settings = host, name, settings
        self._repair = lib.MLT_AT_ONCE if at_once else lib.MLT_IN_PASSES
        self.plane: Final = plane_of(host)

    def offer(self, peer: str, channel: str) -> dict[str, Any]:  # noqa: ARG002  (every flow is new)
        """What a peer needs to open a flow to us: a new token, and the addresses for data."""
        config = self.host.config
        try:
            token = self.plane.core.reserve()
        except DataPlaneError:
            raise PeerBusyError("no flow is free for one more channel", peer=peer) from None
        return _Offer(
            token=token,
            paths=[_PathOffer(address=address, port=port) for _, address, port in self.plane.sockets],
            datagram_bytes=config.datagram_bytes,
            window_bytes=max(65_536, self.plane.receive_bytes // 2),
            authenticate=bool(config.authenticate),
            credit=self.settings.rate_control == "credit",
            key=secrets.token_hex(KEY_BYTES),
            salt=secrets.token_hex(SALT_BYTES),
        ).model_dump()

    def withdraw(self, ours: dict[str, Any]) -> None:
        """Free the token of an offer that is withdrawn."""
        self.plane.forget(ours["token"])

    def accept(
        self, peer: str, channel: str, ours: dict[str, Any], theirs: dict[str, Any]
    ) -> DatagramConnection:
        """Open a flow to the peer once both offers are known; raises PeerRefusedError if they do not fit."""
        mine = _Offer.model_validate(ours)
        try:
            offer = _Offer.model_validate(theirs)
            versions = {ip_address(path.address).version for path in offer.paths}
        except ValueError as error:  # ValidationError is one, too
            raise PeerRefusedError(_malformed(channel, error), peer=peer) from None
        if versions != {ip_address(mine.paths[0].address).version}:
            raise PeerRefusedError("its data has addresses of another version of IP", peer=peer)
        config = self.host.config
        datagram_bytes = min(mine.datagram_bytes, offer.datagram_bytes)
        window_bytes = min(offer.window_bytes, MOST_WINDOW_BYTES)
        has_credit = mine.credit and offer.credit
        if mine.credit and not offer.credit:
            self.host.warn(f"{peer}, channel {channel}: it grants no credit; rate control is bbr")
        options: Fields = {
            "peer_token": offer.token,
            "send_datagram_bytes": datagram_bytes,
            "receive_datagram_bytes": datagram_bytes,
            "silence_ns": round(self.settings.silence_seconds * 1e9),
            "ack_packets": self.settings.acknowledgement_packets,
            "ack_delay_ns": min(config.acknowledgement_delay_ns, self.settings.most_delay_ns),
            "repair": self._repair,
            "control_tos": config.control_dscp << 2 | ECT,
            "spray_random": config.spraying.policy is Policy.RANDOM,
            "has_credit": has_credit,
            "port_bps": config.line_rate_bps or 0.0,
            "receive_window_bytes": min(mine.window_bytes, MOST_WINDOW_BYTES),
            "rate": self._rate_options(window_bytes, has_credit=has_credit),
        }
        body_bytes = datagram_bytes - AGENT_HEADER_BYTES
        if mine.authenticate or offer.authenticate:
            body_bytes -= AUTHENTICATION_TAG_BYTES
            for way, end in (("send", offer), ("receive", mine)):
                options[f"{way}_key"] = bytes.fromhex(end.key)
                options[f"{way}_salt"] = bytes.fromhex(end.salt)
        # As many paths as ours, or as its source routes are; answers go by these, too.
        most = max(len(offer.paths), len(config.spraying.routes.get(peer, ())))
        ends = [
            offer.paths[number % len(offer.paths)] for number in range(min(len(self.plane.sockets), most))
        ]
        paths = [
            self.plane.path(peer, number, there.address, there.port) for number, there in enumerate(ends)
        ]
        try:
            self.plane.core.open(mine.token, options, paths)
        except (OSError, DataPlaneError) as error:
            raise PeerRefusedError(_malformed(channel, error), peer=peer) from None
        remotes = [there.address for there in ends]
        connection = DatagramConnection(
            self.plane, self.name, peer, channel, mine.token, remotes, body_bytes, options["rate"]
        )
        self.plane.flows[mine.token] = connection
        return connection

    def _rate_options(self, window_bytes: int, *, has_credit: bool) -> Fields:
        """Of flows of whose bytes so many may be on the way; who asks for credit in vain has `bbr`."""
        law = self.settings.rate_control
        return {
            **self.host.config.rate_options(window_bytes),
            "kind": CONTROL_LAWS["bbr" if law == "credit" and not has_credit else law],
            "inflight_gain": self.settings.inflight_gain,
        }

    def counters(self) -> dict[str, int]:
        """The data plane's counters, which all transports over datagrams share."""
        return self.plane.counters()

    def close(self) -> None:
        """Release the data plane, which ends with the last transport that uses it."""
        self.plane.close()


def _malformed(channel: str, error: Exception) -> str:
    """Of a peer's offer: what is wrong, but not what it says, which may be a key."""
    problem = first_problem(error) if isinstance(error, ValidationError) else str(error)
    return text(f"its offer of channel {channel} is malformed: {problem}")
