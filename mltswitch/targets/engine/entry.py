"""The form of one kind of database entry, as a string that names its fields and their values.

    EntryForm("wred_green_enable true green_min_threshold {bytes} green_max_threshold {bytes}", words)

An entry is written and read by the same string; `{name}` is a value, the same one wherever it stands.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mltswitch.targets.engine.line import Word


@dataclass(frozen=True)
class EntryForm:
    """One kind of entry: names of fields, each with its value or a hole for it behind it."""

    text: str
    words: Mapping[str, Word]
    """Name of a hole (placeholder) → the words that may stand in it."""
    name: str = ""
    """The name of this kind of entry, for messages."""

    @cached_property
    def fields(self) -> dict[str, str]:
        """Name of a field of the entry → its fixed value, or the name in braces of the value that varies."""
        words = self.text.split()
        return dict(zip(words[::2], words[1::2], strict=True))

    def write(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The entry that has these values; None if a value that has a hole is None."""
        texts: dict[str, Any] = {}
        for field, text in self.fields.items():
            if text[0] != "{":
                texts[field] = text
            elif (value := values[text[1:-1]]) is not None:
                texts[field] = self.words[text[1:-1]].write(value)
            else:
                return None
        return texts

    def read(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """Name of a hole → its value in the entry; None for an entry of another kind."""
        values: dict[str, Any] = {}
        for field, hole in self.fields.items():
            text, name = entry.get(field), hole[1:-1]
            if hole[0] != "{" or name in values:
                continue
            if not isinstance(text, str) or not re.fullmatch(self.words[name].pattern, text):
                return None
            values[name] = self.words[name].read(text)
        return values if self.write(values) == entry else None
