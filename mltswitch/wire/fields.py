"""What a packet header is made of: fields of so many bits, in network order, and names for numbers."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """A named value of a header field, or a named bit of a flag field, whose number is the bit's mask."""

    number: int
    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a packet header: an unsigned number of at most 64 bits, sent most significant bit first."""

    name: str
    bits: int
    meaning: str
    values: tuple[Value, ...] = ()
    """The field's values that have a name; a receiver may meet others."""
    flags: tuple[Value, ...] = ()
    """Masks of the bits that have a meaning; senders set the others to 0, receivers ignore them."""
    is_hexadecimal: bool = False
    """Whether the field's values are shown in base 16."""

    @property
    def maximum(self) -> int:
        """The largest number that fits into the field."""
        return (1 << self.bits) - 1

    @property
    def label(self) -> str:
        """The field's name as it is shown to people: `Element type` for `element_type`."""
        return self.name.replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class Header:
    """A packet header: fields that follow each other without a gap and fill whole bytes."""

    name: str
    title: str
    meaning: str
    fields: tuple[Field, ...]
    size_bytes: int = dataclasses.field(init=False)
    """Length of the header on the wire, in bytes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size_bytes", sum(field.bits for field in self.fields) // 8)

    def encode(self, numbers: Sequence[int]) -> bytes:
        """The bytes of one header; raises ValueError for a number that its field cannot hold."""
        word = 0
        for field, number in zip(self.fields, numbers, strict=True):
            if not 0 <= number <= field.maximum:
                raise ValueError(f"{self.name}.{field.name}: {number} is outside 0-{field.maximum}")
            word = word << field.bits | number
        return word.to_bytes(self.size_bytes, "big")

    def with_offsets(self) -> Iterator[tuple[int, Field]]:
        """Yields each field with the number of header bits that precede it."""
        offset_bits = 0
        for field in self.fields:
            yield offset_bits, field
            offset_bits += field.bits

    def field(self, name: str) -> Field:
        """Returns the header's field of this name, which must exist."""
        return next(field for field in self.fields if field.name == name)
