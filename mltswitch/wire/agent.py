"""The agent header as host agents write and read it, once per packet."""

import struct
from typing import Final, NamedTuple

from mltswitch.wire.codec import Received, WireFormatError, check_length, struct_of
from mltswitch.wire.headers import AGENT, AGENT_VERSION

_STRUCT: Final = struct_of(AGENT)
AGENT_HEADER_BYTES: Final = _STRUCT.size


class AgentHeader(NamedTuple):
    """All fields but the version, in the order and under the names of `headers.AGENT`, which explains them.

    `kind`, `flags` and `element_type` are plain numbers, because a newer peer may send some that have no name
    here; compare them with `AgentKind`, `AgentFlag` and `ElementType`.
    """

    kind: int
    flags: int
    element_type: int
    flow_token: int
    tensor: int
    round: int
    layer: int
    path: int
    sequence: int
    element_offset: int
    sent_nanoseconds: int

    def encode(self) -> bytes:
        """The 40 bytes; raises ValueError for a number that its field cannot hold."""
        try:
            return _STRUCT.pack(AGENT_VERSION, *self)
        except struct.error as error:
            raise ValueError(f"agent header: {error} in {self}") from None

    @classmethod
    def decode(cls, data: Received) -> "AgentHeader":
        """The header that a UDP payload begins with.

        Raises WireFormatError where the payload is shorter than the header or has another version.
        """
        check_length(AGENT, data)
        version, *numbers = _STRUCT.unpack_from(data)
        if version != AGENT_VERSION:
            raise WireFormatError(f"version {version}", where="agent header", expected=f"{AGENT_VERSION}")
        return cls(*numbers)
