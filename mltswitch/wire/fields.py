"""What a packet header is made of: fields of so many bits, in network order, and names for numbers."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAXIMUM_FIELD_BITS: Final = 64
"""The widest number that P4 targets, Wireshark and `struct` all read as one."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number that has a name: of a field's values one, or of a flag field the mask of one bit."""

    number: int
    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Field:
    """An unsigned number, most significant bit first; raises ValueError where its names do not fit it."""

    name: str
    bits: int
    meaning: str
    values: tuple[Value, ...] = ()
    """The assigned values; a receiver may meet others."""
    flags: tuple[Value, ...] = ()
    """The assigned bits, as masks; the others are sent as 0 and not looked at."""
    is_hexadecimal: bool = False
    """Whether people read it in base 16."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAXIMUM_FIELD_BITS:
            raise ValueError(f"{self.name}: {self.bits} bits; expected 1-{MAXIMUM_FIELD_BITS}")
        numbers = [value.number for value in (*self.values, *self.flags)]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"{self.name}: a number has two names")
        if any(not 0 <= number <= self.maximum for number in numbers):
            raise ValueError(f"{self.name}: a named number does not fit into {self.bits} bits")
        if any(flag.number.bit_count() != 1 for flag in self.flags):
            raise ValueError(f"{self.name}: a flag is one bit")

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
    """Fields that follow each other without a gap; raises ValueError where they do not fill whole bytes."""

    name: str
    title: str
    meaning: str
    fields: tuple[Field, ...]
    size_bytes: int = dataclasses.field(init=False)
    """Length on the wire."""

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name}: a field stands twice")
        if sum(field.bits for field in self.fields) % 8:
            raise ValueError(f"{self.name}: the fields do not fill whole bytes")
        object.__setattr__(self, "size_bytes", sum(field.bits for field in self.fields) // 8)

    def with_offsets(self) -> Iterator[tuple[int, Field]]:
        """Each field with the bits that lie before it."""
        offset_bits = 0
        for field in self.fields:
            yield offset_bits, field
            offset_bits += field.bits

    def field(self, name: str) -> Field:
        """One field by its name; raises KeyError for a name that the header does not have."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"{self.name} has no field {name}")
