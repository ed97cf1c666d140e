"""SONiC's CONFIG_DB as data: its JSON, and the keys that name several queues or ports."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from mltswitch.errors import DeviceError

Value = str | list[str]
Entry = dict[str, Value]
Table = dict[str, Entry]
Database = dict[str, Table]
Place = tuple[str, str]
"""Table and key of an entry."""

QUEUE_TABLES: Final = ("QUEUE", "BUFFER_QUEUE")
"""Tables whose keys name a port and queues, such as `Ethernet0|0-2`."""
LISTING_TABLES: Final = (
    *(*QUEUE_TABLES, "BUFFER_PG", "PORT_QOS_MAP"),
    *("BUFFER_PORT_INGRESS_PROFILE_LIST", "BUFFER_PORT_EGRESS_PROFILE_LIST"),
)
"""Tables of whose keys orchagent takes a list of ports, `Ethernet0,Ethernet4|3-4`, as templates of older
releases write them (sonic-swss, qosorch.cpp and bufferorch.cpp, tokenize); the YANG models take one port a
key."""
_QUEUE_KEY: Final = re.compile(r"([^|,]+)\|([0-9]{1,2})(?:-([0-9]{1,2}))?")
_NUMBER: Final = re.compile("[0-9]{1,19}")


def load(text: str, *, skip_text: bool = False) -> Database:
    """A database from JSON; raises ValueError for another form or a key that stands twice.

    `skip_text` leaves out what is plain text where a table should stand.
    """
    tables = json.loads(text, object_pairs_hook=_unique)
    if not isinstance(tables, dict):
        raise ValueError("not an object of tables")  # noqa: TRY004 (the text is wrong, not a type of ours)
    if skip_text:
        tables = {table: entries for table, entries in tables.items() if not isinstance(entries, str)}
    for table, entries in tables.items():
        if not isinstance(entries, dict):
            raise ValueError(f"{table} is no table")  # noqa: TRY004 (as above)
        for key, fields in entries.items():
            if not isinstance(fields, dict) or not all(map(_is_value, fields.values())):
                raise ValueError(f"{table}|{key} has values that are no text")
    return tables


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"{next(name for name in counts if counts[name] > 1)!r} stands twice")
    return found


def _is_value(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def dump(database: Database) -> str:
    """The database as JSON, an entry a line."""
    tables = [
        f"  {json.dumps(table)}: {{\n"
        + ",\n".join(f"    {json.dumps(key)}: {json.dumps(fields)}" for key, fields in entries.items())
        + "\n  }"
        for table, entries in database.items()
    ]
    return "{\n" + ",\n".join(tables) + "\n}\n" if tables else "{}\n"


def text_of(value: Value) -> str:
    """A value as the database holds it: a list is its items with commas between."""
    return value if isinstance(value, str) else ",".join(value)


def number(fields: Entry, name: str) -> int | None:
    """A field as a whole number; None where it is missing or anything else."""
    value = fields.get(name)
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def queues_in(key: str) -> tuple[str, range]:
    """The port and the queues that a key names; an empty port for a key of another form, such as a chassis's.

    No queue for a reversed range, which the YANG models accept and orchagent does not.
    """
    match = _QUEUE_KEY.fullmatch(key)
    if match is None:
        return "", range(0)
    return match[1], range(int(match[2]), int(match[3] or match[2]) + 1)


def keys_by_port(table: Table) -> dict[str, list[tuple[str, range]]]:
    """Port → its keys in one of QUEUE_TABLES, with the queues that each names."""
    found: dict[str, list[tuple[str, range]]] = {}
    for key in table:
        port, queues = queues_in(key)
        found.setdefault(port, []).append((key, queues))
    return found


def queue_keys(port: str, queues: Iterable[int]) -> Iterator[str]:
    """Keys for some queues of one port, ascending, neighbours joined to a range."""
    for _, group in groupby(enumerate(queues), key=lambda pair: pair[1] - pair[0]):
        run = [queue for _, queue in group]
        yield f"{port}|{run[0]}" if len(run) == 1 else f"{port}|{run[0]}-{run[-1]}"


def parts_of(key: str) -> tuple[str, ...]:
    """The single-port keys that together say what a key for several ports says."""
    names, bar, rest = key.partition("|")
    return tuple(f"{port}{bar}{rest}" for port in names.split(","))


def listing_places(database: Database) -> list[Place]:
    """Places of the entries that list several ports, all of which exist."""
    known = database.get("PORT", {}).keys()
    return [
        (table, key)
        for table in LISTING_TABLES
        for key in database.get(table, {})
        if len(ports := key.partition("|")[0].split(",")) > 1 and known >= set(ports)
    ]


def split(database: Database, needed: Database, chosen: Collection[Place] | None = None) -> Database:
    """The database with one key a port in place of each key that lists several, or only of the `chosen` ones.

    Raises DeviceError where keys of both forms exist and differ, for it is unknown which of them runs; except
    for queues in `needed`, which a push sets anew.
    """
    own: dict[Place, set[int]] = {}  # by table and port
    for table in QUEUE_TABLES:
        for port, numbers in map(queues_in, needed.get(table, {})):
            own.setdefault((table, port), set()).update(numbers)
    chosen = listing_places(database) if chosen is None else chosen
    result = database | {table: dict(database[table]) for table, _ in chosen}
    keys: dict[Place, dict[str, range]] = {}  # by table and port
    for table in dict.fromkeys(table for table, _ in chosen):
        for key in result[table]:
            keys.setdefault((table, key.partition("|")[0]), {})[key] = queues_in(key)[1]
    for table, key in chosen:
        entries, fields = result[table], result[table].pop(key)
        for part in parts_of(key):
            port, of_part = part.partition("|")[0], queues_in(part)[1]
            others, queues = keys.setdefault((table, port), {}), {*of_part} - own.get((table, port), set())
            near = others if queues and table in QUEUE_TABLES else others.keys() & {part}
            for other in near:
                differs = not queues.isdisjoint(others[other]) or (other == part and not of_part)
                if differs and not _agree(table, fields, entries[other]):
                    raise DeviceError(
                        f"{table}|{key} and {table}|{other} differ, and nothing tells which of them runs",
                        where=table,
                        hint="remove the one that is not meant: `sudo sonic-db-cli CONFIG_DB del KEY`",
                    )
            entries[part] = {**fields, **entries.get(part, {})}
            others[part] = queues_in(part)[1]
    return result


def _agree(table: str, fields: Entry, others: Entry) -> bool:
    """Whether two keys say the same; of PORT_QOS_MAP orchagent joins the fields."""
    if table == "PORT_QOS_MAP":
        return all(fields.get(name, value) == value for name, value in others.items())
    return fields == others
