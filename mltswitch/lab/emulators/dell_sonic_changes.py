"""What the configuration commands of an emulated Enterprise SONiC switch share."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from mltswitch.lab.emulators.dell_sonic_state import QUEUES, DellSonicConfiguration
from mltswitch.lab.emulators.grammar import Argument, RefusalError, Values, whole

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Change = Callable[[DellSonicConfiguration, Values, tuple[str, ...]], DellSonicConfiguration]
"""The words name the modes in which the line stands: a policy, and its queue; a map; a port."""


def refused(text: str) -> RefusalError:
    """A refusal by what checks values, as the command line prints it."""
    return RefusalError(f"%Error: {text}")


def with_entry(items: Mapping[_Key, _Value], key: _Key, value: _Value) -> Mapping[_Key, _Value]:
    """The mapping with one entry more, or another."""
    return MappingProxyType({**items, key: value})


def without_entry(items: Mapping[_Key, _Value], key: _Key) -> Mapping[_Key, _Value]:
    """The mapping with one entry less; a refusal where there is no such entry."""
    if key not in items:
        raise refused("Resource not found")
    return MappingProxyType({old: value for old, value in items.items() if old != key})


def _parse_name(word: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}", word):
        raise ValueError("a name has at most 32 characters of A-Z, a-z, 0-9, - and _")
    return word


NAME: Final = Argument("name", _parse_name)
QUEUE: Final = whole("queue", 0, QUEUES - 1)
