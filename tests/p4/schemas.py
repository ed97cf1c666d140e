"""Programs as controllers see them, of any shape, and lines that fit them."""

from ipaddress import IPv4Address, IPv6Address
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from p4.config.v1 import p4info_pb2

from mltswitch.capabilities.meter_rate import rate_kept, rate_text
from mltswitch.p4.entries import MAXIMUM_BURST_BYTES, MAXIMUM_RATE_BYTES_PER_SECOND, Schema, schema_of

LPM, EXACT = p4info_pb2.MatchField.LPM, p4info_pb2.MatchField.EXACT
BITS = st.sampled_from([1, 3, 9, 16, 32, 48, 64, 128])
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,7}", fullmatch=True)


@st.composite
def schemas(draw: DrawFn) -> Schema:
    p4info = p4info_pb2.P4Info()
    p4info.meters.add(size=draw(st.integers(1, 4096)), preamble={"id": 1, "alias": "policers"})
    for number, name in enumerate(draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)), 1):
        table = p4info.tables.add(
            size=draw(st.integers(1, 4096)),
            preamble={"id": number, "alias": name},
            implementation_id=draw(st.integers(0, 1)),
        )
        fields = draw(st.lists(st.tuples(BITS, st.sampled_from([LPM, EXACT])), min_size=1, max_size=3))
        for place, (bits, kind) in enumerate(fields, 1):
            table.match_fields.add(id=place, name=f"f{place}", bitwidth=bits, match_type=kind)
        for place, alias in enumerate(draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))):
            action = p4info.actions.add(preamble={"id": number * 10 + place, "alias": alias})
            table.action_refs.add(id=action.preamble.id)
            for parameter, bits in enumerate(draw(st.lists(BITS, max_size=3)), 1):
                action.params.add(id=parameter, name=f"p{parameter}", bitwidth=bits)
    return schema_of(p4info)


def value_text(number: int, bits: int) -> str:
    return number.to_bytes(6, "big").hex(":") if bits == 48 else str(number)


def value(bits: int) -> st.SearchStrategy[str]:
    return st.integers(0, 2**bits - 1).map(lambda number: value_text(number, bits))


@st.composite
def match(draw: DrawFn, field: Any) -> str:
    bits = field.bitwidth
    if field.match_type == EXACT:
        return draw(value(bits))
    length = draw(st.integers(0, bits))
    number = draw(st.integers(0, 2**length - 1)) << bits - length
    addresses = {32: IPv4Address, 128: IPv6Address}
    return f"{addresses[bits](number) if bits in addresses else value_text(number, bits)}/{length}"


@st.composite
def entry_lines(draw: DrawFn, schema: Schema) -> str:
    """A line that adds an entry, as it is written."""
    name, table = draw(st.sampled_from(list(schema.tables.items())))
    alias, action = draw(st.sampled_from(list(schema.actions_of(table).items())))
    members = draw(st.integers(1, 4)) if table.implementation_id and action.params else 1
    key = [draw(match(field)) for field in table.match_fields]
    values = [draw(value(each.bitwidth)) for _ in range(members) for each in action.params]
    return " ".join(["table_add", name, alias, *key, "=>", *values])


@st.composite
def meter_lines(draw: DrawFn, schema: Schema) -> str:
    """A line that sets a meter to rates that BMv2 keeps."""
    rates = st.integers(0, MAXIMUM_RATE_BYTES_PER_SECOND).map(rate_kept)
    bursts = st.integers(0, MAXIMUM_BURST_BYTES)
    index = draw(st.integers(0, schema.meters["policers"].size - 1))
    both = [f"{rate_text(rate)}:{draw(bursts)}" for rate in sorted(draw(st.tuples(rates, rates)))]
    return " ".join(["meter_set_rates", "policers", str(index), *both])


@st.composite
def schemas_and_lines(draw: DrawFn) -> tuple[Schema, str]:
    schema = draw(schemas())
    return schema, draw(st.one_of(entry_lines(schema), meter_lines(schema)))
