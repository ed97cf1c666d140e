"""What a device ran before a push, as it said it itself: a record to read, and no more."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.documents import write_together
from mltswitch.errors import UserInputError
from mltswitch.inventory import Device

_DIGITS: Final = 8
_OWNER_ALONE: Final = 0o700
"""A running configuration may hold hashes of passwords and community strings."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A file to be written before the first line is sent."""

    path: Path
    text: str

    def write(self) -> None:
        """Write it whole, in a folder that is made where it is missing; raises UserInputError."""
        try:
            self.path.parent.mkdir(mode=_OWNER_ALONE, parents=True, exist_ok=True)
        except OSError as error:
            raise UserInputError(f"cannot be made: {error.strerror}", where=str(self.path.parent)) from None
        write_together([(self.path, self.text)], within=self.path.parent)


def kept(folder: Path, device: Device, answers: Mapping[str, str]) -> Kept:
    """Every query and what the device answered to it.

    The name ends in a digest of the text: a second try does not overwrite the record of the first.
    """
    text = "".join(f"### {query}\n{answer.rstrip()}\n\n" for query, answer in answers.items())
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
    return Kept(folder / f"{device.name}-{digest}.txt", text)
