"""How a tensor is cut into packets: whole elements, all packets equally long but for the last."""

from dataclasses import dataclass
from typing import Final

from mltswitch.wire import ElementType

MAXIMUM_PACKETS: Final = 1 << 24
"""Of one tensor: 23 GB in packets of 1,400 bytes, and a bitmap of 2 MiB."""
MAXIMUM_ELEMENTS: Final = 1 << 32
"""What `element_offset` of the agent header can name."""


@dataclass(frozen=True, slots=True)
class PacketLayout:
    """Of one tensor; raises ValueError for numbers that no header could carry."""

    element_type: ElementType
    element_count: int
    elements_per_packet: int

    def __post_init__(self) -> None:
        if not 1 <= self.element_count <= MAXIMUM_ELEMENTS:
            raise ValueError(f"{self.element_count} elements; expected 1-{MAXIMUM_ELEMENTS}")
        if self.elements_per_packet < 1:
            raise ValueError(f"{self.elements_per_packet} elements a packet; expected 1 or more")
        if self.packet_count > MAXIMUM_PACKETS:
            raise ValueError(f"{self.packet_count} packets; expected {MAXIMUM_PACKETS} or fewer")

    @classmethod
    def fitting(cls, element_type: ElementType, element_count: int, payload_bytes: int) -> "PacketLayout":
        """As many whole elements a packet as fit into the payload; raises ValueError where none does."""
        return cls(element_type, element_count, payload_bytes // element_type.size_bytes)

    @property
    def packet_count(self) -> int:
        """Packets of the tensor; their sequence numbers are 0 to one less."""
        return -(-self.element_count // self.elements_per_packet)

    @property
    def size_bytes(self) -> int:
        """Of the whole tensor."""
        return self.element_count * self.element_type.size_bytes

    @property
    def full_bytes(self) -> int:
        """Elements of every packet but the last, in bytes."""
        return self.elements_per_packet * self.element_type.size_bytes

    @property
    def last_bytes(self) -> int:
        """Elements of the last packet, in bytes: 1 to `full_bytes`."""
        return self.size_bytes - (self.packet_count - 1) * self.full_bytes
