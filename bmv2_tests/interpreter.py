"""A compiled P4 program, run packet by packet as BMv2's simple_switch runs it, but without any network.

Written from BMv2's sources (release 1.15.5) and its description of the JSON, not from the P4 program or its
model. Whatever the JSON asks for that is not written here is an error that quotes it.
"""

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

Values = dict[str, int]
"""`header.field` → its value; `header.$valid$`; `header.field#bits`: how long a variable field is."""
Step = Callable[["Interpreter", Values, Any], Any]
"""A compiled operand or primitive: of the switch, the values, and the data of an action or the parser."""

DROP_PORT: Final = 511
Node = Callable[["Interpreter", Values], str | None]
"""A table or a condition; it returns the name of the next one."""
_TABLE_EXTRAS: Final = ("with_counters", "support_timeout", "direct_meters", "entries")
_BINARY: Final = ("+", "-", "*", "<<", ">>", "&", "|", "^", "==", "!=", "<", ">", "<=", ">=", "and", "or")
_OPERATORS: Final = {
    **dict.fromkeys(_BINARY, "({left} {op} {right})"),
    "~": "(~{right})",
    "not": "(not {right})",
    "d2b": "bool({right})",
    "b2d": "int({right})",
    "?": "({left} if {cond} else {right})",
}
"""Operator → Python; integers have no width in BMv2 either, and the compiler masks them."""
_OPERANDS: Final[Mapping[str, Callable[[Any], str]]] = {
    "field": lambda value: f"v[{'.'.join(value)!r}]",
    "hexstr": lambda value: str(int(value, 16)),
    "bool": str,
    "local": lambda value: f"a[{value}]",
    "runtime_data": lambda value: f"a[{value}]",
    "stack_field": lambda value: f"v[s.last(a, {value[0]!r}) + {'.' + value[1]!r}]",
    "lookahead": lambda value: f"s.lookahead(a, *{value!r})",
}
_NAMES: Final = {
    *("register_array", "counter_array", "meter_array", "calculation"),
    *("header", "header_stack", "regular", "stack"),
}
"""Parameters of primitives that name something; all others are operands."""
_PRIMITIVES: Final[Mapping[tuple[str, ...], tuple[int | None, str]]] = {
    ("assign", "", ""): (0, "{1}"),
    ("set", "", ""): (0, "{1}"),
    ("_jump", ""): (None, "{0}"),
    ("_jump_if_zero", "", ""): (None, "None if {0} else {1}"),
    ("register_read", "", "register_array", ""): (0, "s.registers[{1}][{2}]"),
    ("register_write", "register_array", "", ""): (None, "s.write({0}, {1}, {2})"),
    ("count", "counter_array", ""): (None, "s.count({0}, {1}, v)"),
    ("execute_meter", "meter_array", "", ""): (2, "s.color({0}, {1}, v)"),
    ("modify_field_with_hash_based_offset", "", "", "calculation", ""): (
        0,
        "{1} + s.calculate({2}, v) % {3}",
    ),
    ("mark_to_drop", "header"): (None, "s.drop({0}, v)"),
    ("exit",): (None, "v.update(exit=1)"),
    ("add_header", "header"): (None, "s.add_header({0}, v)"),
    ("remove_header", "header"): (None, "v.update({{{0} + '.$valid$': 0}})"),
    ("pop", "header_stack", ""): (None, "s.pop({0}, {1}, v)"),
    ("extract", "regular"): (None, "s.extract(a, v, {0})"),
    ("extract", "stack"): (None, "s.extract(a, v, s.next(a, {0}))"),
    ("extract_VL", "regular", ""): (None, "s.extract(a, v, {0}, {1})"),
    ("verify", "", ""): (None, "s.verify({0}, {1})"),
}
"""Primitive and its parameters → which of them is set, and the Python; a jump returns where to go on."""


class UnknownError(Exception):
    """The program asks for what this interpreter does not do."""

    def __init__(self, what: object) -> None:
        super().__init__(f"not interpreted: {json.dumps(what)[:500]}")


class _ParserError(Exception):
    """The parser ends here; the argument is the number of the error."""


@dataclass
class Table:
    """The entries of a table: masks of its key → masked key → entry, longest prefixes first."""

    size: int
    entries: dict[tuple[int, ...], dict[tuple[int, ...], "Entry"]] = field(default_factory=dict)

    def find(self, key: tuple[int, ...]) -> "Entry | None":
        """The entry that matches best."""
        for masks, entries in self.entries.items():
            found = entries.get(tuple(map(int.__and__, key, masks)))
            if found is not None:
                return found
        return None

    def set(self, masks: tuple[int, ...], key: tuple[int, ...], entry: "Entry") -> None:
        """Insert an entry, or replace the one with this key."""
        if masks not in self.entries:
            self.entries[masks] = {}
            self.entries = dict(sorted(self.entries.items(), reverse=True))
        self.entries[masks][key] = entry

    def copy(self) -> "Table":
        """The same entries, to be changed."""
        return Table(self.size, {masks: dict(entries) for masks, entries in self.entries.items()})

    def __len__(self) -> int:
        return sum(map(len, self.entries.values()))


@dataclass(frozen=True)
class Entry:
    """What an entry does: one of several actions where a selector chooses, else its only one."""

    actions: Sequence[tuple[str, tuple[int, ...]]]
    told: Any = None
    """What the controller wrote."""


class Meter:
    """Token buckets, the committed rate's and the peak rate's, as BMv2 fills and empties them."""

    def __init__(self, rates: Sequence[tuple[float, int]], now: float) -> None:
        self._begun = now
        self._buckets = [[rate, burst, burst, 0] for rate, burst in rates]

    def color(self, size_bytes: int, now: float) -> int:
        """0 is green."""
        for color, bucket in zip((2, 1), reversed(self._buckets), strict=True):
            rate, burst, tokens, seen = bucket
            ever = int((now - self._begun) * rate)
            tokens, bucket[3] = min(tokens + ever - seen, burst), ever
            bucket[2] = tokens if tokens < size_bytes else tokens - size_bytes
            if tokens < size_bytes:
                return color
        return 0


@dataclass
class Packet:
    """Between ingress and egress."""

    values: Values
    payload: bytes
    size_bytes: int

    @property
    def port(self) -> int:
        """That ingress chose."""
        return self.values["standard_metadata.egress_spec"]

    @property
    def queue(self) -> int:
        """0 is served last."""
        return self.values["standard_metadata.priority"]


@dataclass
class _Cursor:
    """How far the parser is."""

    frame: bytes
    offset: int = 0
    filled: dict[str, int] = field(default_factory=dict)
    """Stack → how many of its headers were extracted."""


class Code:
    """A program, compiled to Python; it has no state."""

    def __init__(self, device_config: bytes) -> None:
        self.source: Mapping[str, Any] = json.loads(device_config)
        for name in ("parse_vsets", "learn_lists", "extern_instances", "header_unions", "field_lists"):
            _refuse(self.source[name])
        kinds = {kind["name"]: kind for kind in self.source["header_types"]}
        self.fields = {
            header["name"]: [(f"{header['name']}.{name[0]}", name[1]) for name in kind["fields"]]
            for header in self.source["headers"]
            for kind in [kinds[header["header_type"]]]
        }
        self.bits = {name: bits for fields in self.fields.values() for name, bits in fields if bits != "*"}
        self.bits |= {f"{header}.$valid$": 1 for header in self.fields}
        self.longest = {
            header["name"]: 8 * kinds[header["header_type"]].get("max_length", 0)
            for header in self.source["headers"]
        }
        self.stacks = {
            stack["name"]: [f"{stack['name']}[{index}]" for index in range(stack["size"])]
            for stack in self.source["header_stacks"]
        }
        self.blank: Values = {name: 0 for fields in self.fields.values() for name, _ in fields}
        self.blank |= {name + "#bits": 0 for fields in self.fields.values() for name, b in fields if b == "*"}
        self.blank |= {
            f"{header['name']}.$valid$": int(header["metadata"]) for header in self.source["headers"]
        }
        self.errors = dict(self.source["errors"])
        self.calculations = {each["name"]: each for each in self.source["calculations"]}
        for each in self.calculations.values():
            has_fields_alone = {part["type"] for part in each["input"]} == {"field"}
            _refuse(each, unless=has_fields_alone and each["algo"] in ("crc32", "csum16"))
        self.actions = {
            action["id"]: [self._primitive(**each) for each in action["primitives"]]
            for action in self.source["actions"]
        }
        [parser] = self.source["parsers"]
        self.first_state = parser["init_state"]
        self.states = {state["name"]: self._state(state) for state in parser["parse_states"]}
        self.checksums = [self._checksum(each) for each in self.source["checksums"]]
        [deparser] = self.source["deparsers"]
        _refuse(deparser["primitives"])
        self.emitted: list[str] = deparser["order"]
        self.first_node = {each["name"]: each["init_table"] for each in self.source["pipelines"]}
        self.nodes: dict[str, Node] = {}
        for pipeline in self.source["pipelines"]:
            selectors = {each["name"]: each["selector"] for each in pipeline["action_profiles"]}
            self.nodes |= {each["name"]: self._condition(each) for each in pipeline["conditionals"]}
            self.nodes |= {each["name"]: self._table(each, selectors) for each in pipeline["tables"]}

    def _primitive(self, op: str, parameters: Sequence[Any], **_: Any) -> Step:
        kinds = [each["type"] if each["type"] in _NAMES else "" for each in parameters]
        _refuse({"op": op, "parameters": parameters}, unless=(op, *kinds) in _PRIMITIVES)
        target, template = _PRIMITIVES[op, *kinds]
        operands = [
            repr(each["value"]) if kind else _text(each) for kind, each in zip(kinds, parameters, strict=True)
        ]
        text = template.format(*operands)
        if target is None:
            return _step(text)
        _refuse(parameters, unless=parameters[target]["type"] == "field")
        name = ".".join(parameters[target]["value"])
        return _step(f"v.__setitem__({name!r}, ({text}) & {(1 << self.bits[name]) - 1})")

    def _state(self, state: Any) -> tuple[list[Step], Step, list[tuple[int, int, str | None]]]:
        """Its operations, its key, and (mask, value, next state) of its transitions."""
        key, bits = "0", 0
        for part in state["transition_key"]:
            width = {
                "field": lambda value: self.bits[".".join(value)],
                "stack_field": lambda value: self.bits[f"{value[0]}[0].{value[1]}"],
            }[part["type"]](part["value"])
            bytes_bits = -(-width // 8) * 8
            key, bits = f"({key}) << {bytes_bits} | {_text(part)}", bits + bytes_bits
        cases = []
        for case in state["transitions"]:
            _refuse(case, unless=case["type"] in ("default", "hexstr"))
            is_default = case["type"] == "default"
            mask = 0 if is_default else int(case["mask"], 16) if case["mask"] else (1 << bits) - 1
            cases.append((mask, 0 if is_default else int(case["value"], 16) & mask, case["next_state"]))
        _refuse(cases, unless=cases[-1][0] == 0)  # error.NoMatch
        return [self._primitive(**each) for each in state["parser_ops"]], _step(key), cases

    def _checksum(self, checksum: Any) -> Step:
        is_generic = checksum["type"] == "generic"
        _refuse(checksum, unless=is_generic and checksum["verify"] and not checksum["update"])
        target = _text({"type": "field", "value": checksum["target"]})
        condition = _text(checksum["if_cond"]) if checksum["if_cond"] else "True"
        return _step(f"{condition} and s.calculate({checksum['calculation']!r}, v) != {target}")

    def _condition(self, node: Any) -> "Node":
        condition = _step(_text(node["expression"]))
        following: dict[bool, str | None] = {True: node["true_next"], False: node["false_next"]}
        return lambda s, v: following[bool(condition(s, v, ()))]

    def _table(self, table: Any, selectors: Mapping[str, Any]) -> "Node":
        _refuse([each for each in table["key"] if each["match_type"] not in ("exact", "lpm") or each["mask"]])
        _refuse([table[each] for each in _TABLE_EXTRAS if table.get(each)])
        choose = _step("0")
        if table["type"] != "simple":
            _refuse(table["type"], unless=table["type"] == "indirect_ws")
            selector = selectors[table["action_profile"]]
            _refuse(selector, unless=selector["algo"] == "identity" and len(selector["input"]) == 1)
            choose = _step(_text(selector["input"][0]))
        texts = [_text({"type": "field", "value": each["target"]}) for each in table["key"]]
        key = _step(f"({''.join(text + ',' for text in texts)})")
        names = dict(zip(table["action_ids"], table["actions"], strict=True))
        actions = {name: self.actions[number] for number, name in names.items()}
        default = None
        if table.get("default_entry"):
            data = tuple(int(word, 16) for word in table["default_entry"]["action_data"])
            default = Entry([(names[table["default_entry"]["action_id"]], data)])
        following: dict[str, str | None] = table["next_tables"]
        miss: str | None = table["base_default_next"]
        name: str = table["name"]

        def apply(s: Interpreter, v: Values) -> str | None:
            found = s.tables[name].find(key(s, v, ())) if texts else None
            entry = found or default
            if entry is None:
                return following.get("__MISS__", miss)
            action, data = entry.actions[choose(s, v, ()) % len(entry.actions)]
            steps, at = actions[action], 0
            while at < len(steps):
                target = steps[at](s, v, data)
                at = at + 1 if target is None else target
            outcome = "__HIT__" if found else "__MISS__"
            return following[outcome if outcome in following else action]

        return apply


class Interpreter:
    """A program with the state of a switch; `now` is in microseconds, and whoever calls sets it."""

    def __init__(self, code: Code) -> None:
        self.code, source = code, code.source
        self.now = 1.0
        self.registers = {each["name"]: [0] * each["size"] for each in source["register_arrays"]}
        self.register_bits = {each["name"]: each["bitwidth"] for each in source["register_arrays"]}
        self.counters = {
            each["name"]: [[0, 0] for _ in range(each["size"])] for each in source["counter_arrays"]
        }
        self.meters: dict[str, dict[int, Meter]] = {each["name"]: {} for each in source["meter_arrays"]}
        tables = [table for pipeline in source["pipelines"] for table in pipeline["tables"]]
        self.tables = {table["name"]: Table(table["max_size"]) for table in tables}

    def ingress(self, port: int, frame: bytes) -> Packet | None:
        """A frame that arrived, as far as its queue; None where it is dropped before."""
        v = self.code.blank.copy()
        v["standard_metadata.ingress_port"], v["standard_metadata.packet_length"] = port, len(frame)
        v["standard_metadata.ingress_global_timestamp"] = int(self.now)
        v["#size"] = len(frame)
        payload = self._parse(frame, v)
        v["standard_metadata.checksum_error"] = int(any(each(self, v, ()) for each in self.code.checksums))
        self._run("ingress", v)
        _refuse(v["standard_metadata.mcast_grp"])
        packet = Packet(v, payload, len(frame))
        return None if packet.port == DROP_PORT else packet

    def egress(self, packet: Packet, depth: int) -> bytes | None:
        """The frame as it leaves its queue, in which so many packets still wait; None where it is dropped."""
        v, port = packet.values, packet.port
        del v["standard_metadata.packet_length"]  # not kept up to date here, so nothing may read it
        v["standard_metadata.egress_global_timestamp"] = int(self.now)
        v["standard_metadata.deq_qdepth"] = depth
        v["standard_metadata.egress_port"], v["standard_metadata.egress_spec"] = port, DROP_PORT + 1
        self._run("egress", v)
        if v["standard_metadata.egress_spec"] == DROP_PORT:
            return None
        headers = [self._emit(header, v) for header in self.code.emitted if v[f"{header}.$valid$"]]
        return b"".join((*headers, packet.payload))

    def _run(self, pipeline: str, v: Values) -> None:
        node, v["exit"] = self.code.first_node[pipeline], 0
        while node is not None and not v["exit"]:
            node = self.code.nodes[node](self, v)

    def _parse(self, frame: bytes, v: Values) -> bytes:
        """What follows the headers."""
        cursor, state = _Cursor(frame), self.code.first_state
        try:
            while state is not None:
                steps, key, cases = self.code.states[state]
                for step in steps:
                    step(self, v, cursor)
                value = key(self, v, cursor)
                state = next(following for mask, wanted, following in cases if value & mask == wanted)
        except _ParserError as error:
            v["standard_metadata.parser_error"] = error.args[0]
        return frame[cursor.offset :]

    def _emit(self, header: str, v: Values) -> bytes:
        value = size = 0
        for name, bits in self.code.fields[header]:
            width = v[name + "#bits"] if bits == "*" else bits
            value, size = value << width | v[name], size + width
        return value.to_bytes(size // 8, "big")

    # What compiled steps call.

    def last(self, cursor: _Cursor, stack: str) -> str:
        """The header of a stack that was extracted last."""
        return self.code.stacks[stack][cursor.filled[stack] - 1]

    def next(self, cursor: _Cursor, stack: str) -> str:
        """The header of a stack that is extracted next."""
        index, headers = cursor.filled.get(stack, 0), self.code.stacks[stack]
        self.verify(index < len(headers), self.code.errors["StackOutOfBounds"])
        cursor.filled[stack] = index + 1
        return headers[index]

    def verify(self, condition: bool, error: int) -> None:
        """End the parser with an error unless a condition holds."""
        if not condition:
            raise _ParserError(error)

    def lookahead(self, cursor: _Cursor, offset: int, bits: int) -> int:
        """Bits that follow, without going on."""
        end = cursor.offset * 8 + offset + bits
        self.verify(end <= 8 * len(cursor.frame), self.code.errors["PacketTooShort"])
        return int.from_bytes(cursor.frame, "big") >> (8 * len(cursor.frame) - end) & ((1 << bits) - 1)

    def extract(self, cursor: _Cursor, v: Values, header: str, variable_bits: int = 0) -> None:
        """Read a header, of which one field may be so long."""
        errors, fields = self.code.errors, self.code.fields[header]
        self.verify(variable_bits <= self.code.longest.get(header, 0), errors["HeaderTooShort"])
        self.verify(variable_bits % 8 == 0, errors["ParserInvalidArgument"])
        widths = [variable_bits if bits == "*" else bits for _, bits in fields]
        end = cursor.offset + sum(widths) // 8
        self.verify(end <= len(cursor.frame), errors["PacketTooShort"])
        value, cursor.offset = int.from_bytes(cursor.frame[cursor.offset : end], "big"), end
        for (name, bits), width in zip(reversed(fields), reversed(widths), strict=True):
            v[name] = value & ((1 << width) - 1)
            value >>= width
            if bits == "*":
                v[name + "#bits"] = width
        v[f"{header}.$valid$"] = 1

    def drop(self, metadata: str, v: Values) -> None:
        """Mark a packet to be dropped at the end of its pipeline."""
        v[f"{metadata}.egress_spec"], v[f"{metadata}.mcast_grp"] = DROP_PORT, 0

    def add_header(self, header: str, v: Values) -> None:
        """Make a header valid, all fields 0 if it was not."""
        if not v[f"{header}.$valid$"]:
            v.update({name: 0 for name, _ in self.code.fields[header]} | {f"{header}.$valid$": 1})

    def pop(self, stack: str, number: int, v: Values) -> None:
        """Take headers from the front of a stack; the others move up."""
        names = self.code.stacks[stack]
        parts = ["$valid$", *(name.removeprefix(f"{names[0]}.") for name, _ in self.code.fields[names[0]])]
        for index, header in enumerate(names):
            behind = names[index + number] if index + number < len(names) else None
            v.update({f"{header}.{part}": v[f"{behind}.{part}"] if behind else 0 for part in parts})

    def write(self, register: str, index: int, value: int) -> None:
        """Set a cell of a register."""
        self.registers[register][index] = value & ((1 << self.register_bits[register]) - 1)

    def count(self, counter: str, index: int, v: Values) -> None:
        """Count the packet, and the bytes with which it came."""
        cell = self.counters[counter][index]
        cell[0], cell[1] = cell[0] + 1, cell[1] + v["#size"]

    def color(self, meter: str, index: int, v: Values) -> int:
        """What a meter says; green where it has no rates."""
        cell = self.meters[meter].get(index)
        return cell.color(v["#size"], self.now) if cell else 0

    def calculate(self, name: str, v: Values) -> int:
        """A hash or a checksum."""
        calculation, value, size = self.code.calculations[name], 0, 0
        for header, part in (each["value"] for each in calculation["input"]):
            if v[f"{header}.$valid$"]:
                name = f"{header}.{part}"
                width = v.get(name + "#bits", self.code.bits.get(name, 0))
                value, size = value << width | v[name], size + width
        data = (value << -size % 16).to_bytes(-(-size // 16) * 2, "big")
        if calculation["algo"] == "crc32":
            return zlib.crc32(data[: -(-size // 8)])
        total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return ~total & 0xFFFF


@cache
def compiled(device_config: bytes) -> Code:
    """A program, compiled once."""
    return Code(device_config)


def _text(node: Any) -> str:
    """An operand as a Python expression."""
    kind, value = node["type"], node["value"]
    if kind in _OPERANDS:
        return _OPERANDS[kind](value)
    _refuse(node, unless=kind == "expression")
    if "type" in value:
        return _text(value)
    _refuse(node, unless=value["op"] in _OPERATORS)
    operands = {side: _text(value[side]) for side in ("cond", "left", "right") if value.get(side)}
    return _OPERATORS[value["op"]].format(op=value["op"], **operands)


def _refuse(what: object, *, unless: bool = False) -> None:
    if what and not unless:
        raise UnknownError(what)


def _step(text: str) -> Step:
    step: Step = eval(f"lambda s, v, a: {text}")  # noqa: S307  (made of our own program)
    return step
