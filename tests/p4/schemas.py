"""Programs as controllers see them, of any shape, and changes that fit them."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from mltswitch.p4.entries import (
    MAXIMUM_BURST_BYTES,
    MAXIMUM_RATE_BYTES_PER_SECOND,
    Change,
    EntryChange,
    Match,
    MeterChange,
    Rate,
    Verb,
)
from mltswitch.p4.schema import Action, CellArray, MatchField, MatchKind, Parameter, Schema, Table

BITS = st.sampled_from([1, 3, 9, 16, 32, 48, 64, 128])
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,7}", fullmatch=True)


@st.composite
def actions(draw: DrawFn, identifier: int, name: str) -> Action:
    widths = draw(st.lists(BITS, max_size=3))
    parameters = tuple(Parameter(number, f"p{number}", bits) for number, bits in enumerate(widths, 1))
    return Action(identifier, name, parameters)


@st.composite
def tables(draw: DrawFn, identifier: int, name: str) -> Table:
    fields = draw(st.lists(st.tuples(BITS, st.sampled_from(MatchKind)), min_size=1, max_size=3))
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    return Table(
        identifier,
        name,
        tuple(MatchField(number, f"f{number}", *field) for number, field in enumerate(fields, 1)),
        {
            action_name: draw(actions(identifier * 10 + number, action_name))
            for number, action_name in enumerate(names)
        },
        size=draw(st.integers(1, 4096)),
        is_shared=draw(st.booleans()),
    )


@st.composite
def schemas(draw: DrawFn) -> Schema:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return Schema(
        tables={name: draw(tables(number, name)) for number, name in enumerate(names, 1)},
        meters={"policers": CellArray(1, "policers", draw(st.integers(1, 4096)))},
        counters={},
    )


@st.composite
def matches(draw: DrawFn, field: MatchField) -> Match:
    value = draw(st.integers(0, 2**field.bits - 1))
    if field.kind is MatchKind.EXACT:
        return Match(value, field.bits)
    prefix_bits = draw(st.integers(0, field.bits))
    return Match(value >> (field.bits - prefix_bits) << (field.bits - prefix_bits), prefix_bits)


@st.composite
def entry_changes(draw: DrawFn, schema: Schema) -> EntryChange:
    verb = draw(st.sampled_from(Verb))
    table = draw(st.sampled_from(list(schema.tables.values())))
    key = tuple(draw(matches(field)) for field in table.fields)
    if verb is Verb.DELETE:
        return EntryChange(verb, table, key)
    action = draw(st.sampled_from(list(table.actions.values())))
    members = draw(st.integers(1, 4)) if table.is_shared and action.parameters else 1
    parameters = tuple(
        draw(st.integers(0, 2**parameter.bits - 1)) for _ in range(members) for parameter in action.parameters
    )
    return EntryChange(verb, table, key, action, parameters)


def rates() -> SearchStrategy[int]:
    return st.integers(0, MAXIMUM_RATE_BYTES_PER_SECOND)


@st.composite
def meter_changes(draw: DrawFn, schema: Schema) -> MeterChange:
    meter = draw(st.sampled_from(list(schema.meters.values())))
    committed, peak = sorted(draw(st.tuples(rates(), rates())))
    bursts = st.integers(0, MAXIMUM_BURST_BYTES)
    return MeterChange(
        meter,
        draw(st.integers(0, meter.size - 1)),
        Rate(committed, draw(bursts)),
        Rate(peak, draw(bursts)),
    )


@st.composite
def schemas_and_changes(draw: DrawFn) -> tuple[Schema, Change]:
    schema = draw(schemas())
    return schema, draw(st.one_of(entry_changes(schema), meter_changes(schema)))
