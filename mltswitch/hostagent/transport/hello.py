"""What two agents tell each other first: who they are, where data goes, and what they can take."""

import json
from dataclasses import dataclass
from typing import Annotated, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyAddress,
    ValidationError,
    field_validator,
    model_validator,
)

from mltswitch.hostagent.errors import ProtocolViolationError
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.units import ETHERNET_HEADER_BYTES
from mltswitch.wire.headers import AGENT_VERSION
from mltswitch.wire.internet import IPV4_HEADER_BYTES, UDP_HEADER_BYTES

PROTOCOL_VERSIONS: Final = (AGENT_VERSION,)
"""Those that we speak."""
MAXIMUM_PATHS: Final = 256
KEY_BYTES: Final = 32
LEAST_PAYLOAD_BYTES: Final = 64
"""Header, tag and one element of every type."""
MAXIMUM_CHUNK_BYTES: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class PathAddress:
    """Where datagrams of one path are sent to."""

    path: int
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class LocalEnd:
    """What this host says of itself to one peer."""

    name: str
    data_addresses: tuple[PathAddress, ...]
    """Where the peer sends data and acknowledgements to, one address a path."""
    window_bytes: int
    """What the peer may have on its way to us: our receive buffer, or its part of it."""
    payload_bytes: int
    """The longest UDP payload that we send or take."""
    authenticate: bool
    """Whether every datagram carries a tag; it does if either end asks for it."""
    control_dscp: int
    """Of acknowledgements and path probes."""
    transport: Transport = Transport.MLT
    chunk_bytes: int = 0
    """The longest piece of a tensor that we send or take over TCP; 0: we do not."""
    wire_header_bytes: int = ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES + UDP_HEADER_BYTES
    """What a packet of ours is longer than its UDP payload, as a queue counts it; the peer is not told."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Random, new for each connection."""

    token: int
    """In every datagram to us."""
    key: bytes
    """Of the tags of datagrams to us."""

    def __repr__(self) -> str:
        return "Secrets(…)"


class _Address(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    path: int = Field(ge=0, lt=1 << 16)
    address: IPvAnyAddress
    port: int = Field(ge=1, lt=1 << 16)

    @field_validator("address")
    @classmethod
    def _is_no_ones_alone(cls, address: IPvAnyAddress) -> IPvAnyAddress:
        if getattr(address, "scope_id", None) is not None:
            raise ValueError("a scope means something on its own host only")
        return address


class PeerHello(BaseModel):
    """The peer's HELLO; what later versions add is not looked at."""

    model_config = ConfigDict(frozen=True, strict=True)
    versions: tuple[Annotated[int, Field(ge=0, lt=256)], ...] = Field(min_length=1, max_length=32)
    name: str = Field(min_length=1, max_length=255)
    data: tuple[_Address, ...] = Field(min_length=1, max_length=MAXIMUM_PATHS)
    window_bytes: int = Field(ge=1, lt=1 << 40)
    payload_bytes: int = Field(ge=LEAST_PAYLOAD_BYTES, le=UDP_MAXIMUM_PAYLOAD_BYTES)
    authenticate: bool
    transport: str = Field(Transport.MLT.value, max_length=32)
    """A later version's may be one that we do not know."""
    chunk_bytes: int = Field(0, ge=0, le=MAXIMUM_CHUNK_BYTES)
    token: int = Field(ge=0, lt=1 << 64, repr=False)
    key: str = Field(pattern=r"^[0-9a-f]{64}$", repr=False)

    @model_validator(mode="after")
    def _each_path_once(self) -> Self:
        if len({entry.path for entry in self.data}) < len(self.data):
            raise ValueError("a path has two addresses")
        return self

    @property
    def data_addresses(self) -> tuple[PathAddress, ...]:
        """One a path."""
        return tuple(PathAddress(entry.path, str(entry.address), entry.port) for entry in self.data)

    @property
    def key_bytes(self) -> bytes:
        """Of the tags of datagrams to the peer."""
        return bytes.fromhex(self.key)


def disagreement(local: LocalEnd, peer: PeerHello) -> str | None:
    """Why the two ends cannot talk to each other; None: they can."""
    if not set(peer.versions) & set(PROTOCOL_VERSIONS):
        ours, theirs = (", ".join(map(str, versions)) for versions in (PROTOCOL_VERSIONS, peer.versions))
        return f"no common version of the protocol: {ours} here, {theirs} there"
    if peer.transport != local.transport:
        return f"the ends use different transports: {local.transport} here, {peer.transport} there"
    return None


def encode_hello(local: LocalEnd, secrets: Secrets) -> bytes:
    """The body of a HELLO: JSON, so that every version can read every other's."""
    return json.dumps(
        {
            "versions": PROTOCOL_VERSIONS,
            "name": local.name,
            "data": [
                {"path": entry.path, "address": entry.address, "port": entry.port}
                for entry in local.data_addresses
            ],
            "window_bytes": local.window_bytes,
            "payload_bytes": local.payload_bytes,
            "authenticate": local.authenticate,
            "transport": local.transport,
            "chunk_bytes": local.chunk_bytes,
            "token": secrets.token,
            "key": secrets.key.hex(),
        }
    ).encode()


def decode_hello(body: bytes) -> PeerHello:
    """Raises ProtocolViolationError, without quoting the body: it holds secrets."""
    try:
        return PeerHello.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the message"
        raise ProtocolViolationError(f"hello: {place}: {first['msg']}") from None
