"""CONFIG_DB as data: loading it from JSON, and the keys that name one or several queues."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby, product
from json.encoder import encode_basestring_ascii as _encoded
from typing import Final

from mltswitch.errors import DeviceError

Value = str | list[str]
Entry = dict[str, Value]
Table = dict[str, Entry]
Database = dict[str, Table]

QUEUE_TABLES: Final = ("QUEUE", "BUFFER_QUEUE")
"""Whose keys name ports and queues."""
LISTING_TABLES: Final = (
    *(*QUEUE_TABLES, "BUFFER_PG", "PORT_QOS_MAP"),
    *("BUFFER_PORT_INGRESS_PROFILE_LIST", "BUFFER_PORT_EGRESS_PROFILE_LIST"),
)
"""Of whose keys orchagent takes a list of ports, `Ethernet0,Ethernet4|3-4`, as templates of older releases
write them (sonic-swss, qosorch.cpp and bufferorch.cpp, tokenize); the YANG models take one port a key."""

_QUEUE_KEY: Final = re.compile(r"(?P<ports>[^|]+)\|(?P<first>[0-9]{1,2})(?:-(?P<last>[0-9]{1,2}))?")
MOST_QUEUES: Final = 200_000
"""Of all ports, that the keys of a database name together; counted before anybody makes a list of them."""


def load(text: str, *, skip_text: bool = False) -> Database:
    """A database from JSON; raises ValueError for another form or a key that stands twice.

    `skip_text` leaves out what is plain text where a table should stand.
    """
    document = json.loads(text, object_pairs_hook=_unique)
    if not isinstance(document, dict):
        raise ValueError("not an object of tables")  # noqa: TRY004 (the text is wrong, not a type of ours)
    if skip_text:
        document = {table: entries for table, entries in document.items() if not isinstance(entries, str)}
    for table, entries in document.items():
        if not isinstance(entries, dict):
            raise ValueError(f"{table} is no table")  # noqa: TRY004 (as above)
        for key, fields in entries.items():
            if not isinstance(fields, dict) or not _are_values(fields.values()):
                raise ValueError(f"{table}|{key} has values that are no text")
    if sum(map(_queues_named, chain.from_iterable(document.values()))) > MOST_QUEUES:
        raise ValueError(f"its keys name more than {MOST_QUEUES:,} queues")
    return document


def _queues_named(key: str) -> int:
    match = _QUEUE_KEY.fullmatch(key)
    if match is None:
        return 0
    return (key.count(",") + 1) * max(0, int(match["last"] or match["first"]) - int(match["first"]) + 1)


def dump(database: Database) -> str:
    """The same as JSON, an object a line."""
    tables: list[str] = []
    known: dict[int, str] = {}  # queues that are alike have one entry in common
    for table, entries in database.items():
        lines: list[str] = []
        for key, fields in entries.items():
            text = known.get(id(fields))
            if text is None:
                text = known[id(fields)] = _encoded_entry(fields)
            lines.append(f"    {_encoded(key)}: {text}")
        tables.append(f"  {_encoded(table)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(tables) + "\n}\n" if tables else "{}\n"


def _encoded_entry(fields: Entry) -> str:
    """By hand: the encoder takes longer to begin than for so little."""
    encoded = [
        f"{_encoded(name)}: {_encoded(value) if isinstance(value, str) else json.dumps(value)}"
        for name, value in fields.items()
    ]
    return "{" + ", ".join(encoded) + "}"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"{next(name for name in counts if counts[name] > 1)!r} stands twice")
    return found


def _are_values(values: Collection[object]) -> bool:
    return {*map(type, values)} <= {str} or all(
        isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))
        for value in values
    )


@dataclass(frozen=True, slots=True)
class QueueKey:
    """The key of QUEUE or BUFFER_QUEUE: ports (older releases list several) and queues, `Ethernet0|0-2`."""

    ports: tuple[str, ...]
    queues: tuple[int, ...]
    """Empty for a reversed range, which the YANG models accept and orchagent does not."""
    covered: tuple[tuple[str, int], ...] = field(init=False, repr=False, compare=False)
    """(port, queue) of all that the key names."""

    def __post_init__(self) -> None:
        """Once, as keys are remembered."""
        object.__setattr__(self, "covered", tuple(product(self.ports, self.queues)))

    @staticmethod
    def parse(key: str) -> "QueueKey | None":
        """None for a key of another form, such as those of chassis."""
        return _parsed(key)


def parts_of(table: str, key: str) -> tuple[str, ...]:
    """The keys for single ports that say what a key for several says; none for any other key."""
    names, bar, rest = key.partition("|")
    ports = names.split(",")
    if table not in LISTING_TABLES or len(ports) == 1 or not all(map(str.isalnum, ports)):
        return ()
    return tuple(f"{port}{bar}{rest}" for port in ports)


def listing_keys(database: Database) -> list[tuple[str, str]]:
    """Table and key of each entry that lists several ports, all of which are there."""
    known = database.get("PORT", {}).keys()
    return [
        (table, key)
        for table in LISTING_TABLES
        for key in database.get(table, {})
        if "," in key and parts_of(table, key) and known >= set(key.partition("|")[0].split(","))
    ]


def split(database: Database, chosen: Collection[tuple[str, str]] | None = None) -> Database:
    """The same with a key a port in place of each key that lists several, or of the chosen ones.

    Raises DeviceError where both forms stand there and differ: nobody knows which of them runs.
    """
    chosen = listing_keys(database) if chosen is None else chosen
    result = database | {table: dict(database[table]) for table, _ in chosen}
    for table, key in chosen:
        fields = result[table].pop(key)
        for part in parts_of(table, key):
            other = result[table].get(part, {})
            if any(fields.get(name, value) != value for name, value in other.items()) or (
                other and table != "PORT_QOS_MAP" and other != fields  # of which orchagent joins the fields
            ):
                raise contradiction(table, key, part)
            result[table][part] = {**fields, **other}
    return result


def contradiction(table: str, key: str, other: str) -> DeviceError:
    """Two keys say different things of one port and queue."""
    return DeviceError(
        f"{table}|{key} and {table}|{other} differ, and nothing tells which of them runs",
        where=table,
        hint="remove the one that is not meant: `sudo sonic-db-cli CONFIG_DB del KEY`",
    )


def queue_keys(port: str, queues: list[int]) -> Iterator[str]:
    """Keys for some queues of one port, neighbours joined to a range."""
    for _, group in groupby(enumerate(sorted(queues)), key=lambda pair: pair[1] - pair[0]):
        run = [queue for _, queue in group]
        yield f"{port}|{run[0]}" if len(run) == 1 else f"{port}|{run[0]}-{run[-1]}"


@lru_cache(maxsize=8192)
def _parsed(key: str) -> QueueKey | None:
    match = _QUEUE_KEY.fullmatch(key)
    if match is None:
        return None
    first, last = int(match["first"]), int(match["last"] or match["first"])
    return QueueKey(tuple(match["ports"].split(",")), tuple(range(first, last + 1)))


def keys_by_queue(table: Mapping[str, Entry]) -> dict[str, dict[int, list[str]]]:
    """Port → queue → keys that name it; more than one where they overlap."""
    found: dict[str, dict[int, list[str]]] = {}
    for key in table:
        parsed = QueueKey.parse(key)
        if parsed is not None:
            for port, queue in parsed.covered:
                found.setdefault(port, {}).setdefault(queue, []).append(key)
    return found
