"""What a packet header is made of: fields of so many bits, in network order, and names for numbers."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """A number that has a name: of a field's values one, or of a flag field the mask of one bit."""

    number: int
    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Field:
    """An unsigned number of 64 bits or fewer, most significant bit first."""

    name: str
    bits: int
    meaning: str
    values: tuple[Value, ...] = ()
    """The assigned values; a receiver may meet others."""
    flags: tuple[Value, ...] = ()
    """The assigned bits, as masks; the others are sent as 0 and not looked at."""
    is_hexadecimal: bool = False
    """Whether people read it in base 16."""

    @property
    def maximum(self) -> int:
        """The largest number that fits."""
        return (1 << self.bits) - 1

    @property
    def label(self) -> str:
        """The name as people read it: `Element type`."""
        return self.name.replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class Header:
    """Fields that follow each other without a gap and fill whole bytes."""

    name: str
    title: str
    meaning: str
    fields: tuple[Field, ...]
    size_bytes: int = dataclasses.field(init=False)
    """Length on the wire."""

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
        """Each field with the bits that lie before it."""
        offset_bits = 0
        for field in self.fields:
            yield offset_bits, field
            offset_bits += field.bits

    def field(self, name: str) -> Field:
        """One field by its name, which the header has."""
        return next(field for field in self.fields if field.name == name)
