"""Translates a switch's state to leaves of OpenConfig's models and back, and finds the change between two.

A leaf has gNMI's path and JSON_IETF's value (RFC 7951). Names of our objects say what they hold, so none is
changed in use (`mltswitch-red-6144` marks from 6144 B on). A rollback is a change to the former leaves.

Devices choose three names: that of the default network instance, that of its static routes, and those of
queues that exist as delivered. They are learnt from a device's answers; elsewhere they are those of a file.
"""

import json
import re
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Network
from typing import Any, Final

from mltswitch.capabilities import Capabilities, Unlimited
from mltswitch.errors import DeviceError, PreflightError, printable
from mltswitch.plan import Plan, Switch
from mltswitch.targets.addresses import address_text, ipv4_address, ipv4_network, network_text
from mltswitch.targets.base import Change, FileError, FittedState, Identity, LineError, RunningState, Step
from mltswitch.targets.common import NO_NEXT_HOP, json_in, known_form, without_route_ports
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState, differences
from mltswitch.wire.tos import DSCP_COUNT

Leaves = dict[str, Any]
"""Path of a leaf → its value, a JSON scalar or a list of them."""
FILE: Final = "mltswitch.json"
PART: Final = re.compile(r"/([A-Za-z_][\w.-]*)((?:\[[^\[\]=]+=[^\[\]]*\])*)")
"""Pattern of one element of a path: its name, and its keys."""
KEY: Final = re.compile(r"\[([^=]+)=([^\]]*)\]")
CAPABILITIES: Final = "capabilities"
"""The query for the device's models and their versions."""
CONFIG: Final = "config"
"""First word of a query for what is configured below a path, and for state that differs from it."""
STATE: Final = "state"
"""First word of a query for the operational state below a path."""
SET: Final = "set"
"""First word of a change's only step, a SetRequest, which takes effect as a whole or not at all."""
QOS: Final = f"{CONFIG} /qos"
INSTANCES: Final = f"{CONFIG} /network-instances/network-instance[name=*]/config"
ROUTES: Final = (
    f"{CONFIG} /network-instances/network-instance[name=*]/protocols/protocol[identifier=STATIC][name=*]"
)
MEMBERS: Final = f"{CONFIG} /interfaces/interface[name=*]/ethernet/config/aggregate-id"
SYSTEM: Final = f"{STATE} /system/state"
CHASSIS: Final = f"{STATE} /components/component[name=Chassis]/state"
"""The name of the chassis component on Arista's and Nokia's devices (FP)."""

_NAME: Final = "mltswitch-"
_MODULES: Final = {"qos": "openconfig-qos", "network-instances": "openconfig-network-instance"}
_LONGEST: Final = 1000
"""Characters of a path: each leaf has one, so a short answer with long keys would fill the memory."""
_OLDEST: Final = (0, 8)
"""Version of openconfig-qos in which a queue got its hardware number."""
_INSTANCE: Final = "/network-instances/network-instance[name=DEFAULT]"
_STATIC: Final = f"{_INSTANCE}/protocols/protocol[identifier=STATIC][name=STATIC]"
_ROUTE: Final = f"{_STATIC}/static-routes/static[prefix="
_PORT: Final = "/qos/interfaces/interface[interface-id="
_RED: Final = "/qos/queue-management-profiles/queue-management-profile[name={red}]"
_POLICY: Final = "/qos/scheduler-policies/scheduler-policy[name={strict}]"
_CLASSIFIER: Final = "/qos/classifiers/classifier[name={spread}]"
_LAYOUT: Final = {
    "queue": """
/qos/queues/queue[name={queue}]/config name={queue} queue-id={n}
/qos/forwarding-groups/forwarding-group[name={group}]/config name={group} output-queue={queue}""",
    # Thresholds that are equal, on the queue's own length: by the model's formula, weight 0 averages nothing.
    "red": f"""
{_RED}/config name={{red}}
{_RED}/wred/uniform/config min-threshold={{size}} max-threshold={{size}} enable-ecn=true drop=true weight=0 \
max-drop-probability-percent=100
{_PORT}{{port}}]/output/queues/queue[name={{queue}}]/config queue-management-profile={{red}}""",
    # Schedulers are served from the lowest sequence to the highest.
    "service": f"""
{_POLICY}/config name={{strict}}
{_POLICY}/schedulers/scheduler[sequence={{place}}]/config sequence={{place}} priority=STRICT
{_POLICY}/schedulers/scheduler[sequence={{place}}]/inputs/input[id={{n}}]/config id={{n}} input-type=QUEUE \
queue={{queue}}
{_PORT}{{port}}]/output/queues/queue[name={{queue}}]/config name={{queue}}""",
    "port": f"""
{_PORT}{{port}}]/config interface-id={{port}}
{_PORT}{{port}}]/interface-ref/config interface={{port}}
{_PORT}{{port}}]/output/scheduler-policy/config name={{strict}}""",
    "spread": f"""
{_CLASSIFIER}/config name={{spread}} type={{kind}}
{_PORT}{{port}}]/input/classifiers/classifier[type={{kind}}]/config type={{kind}} name={{spread}}""",
    "term": f"""
{_CLASSIFIER}/terms/term[id={{n}}]/config id={{n}}
{_CLASSIFIER}/terms/term[id={{n}}]/conditions/{{family}}/config dscp-set={{dscps}}
{_CLASSIFIER}/terms/term[id={{n}}]/actions/config target-group={{group}}""",
    "static": f"""
{_STATIC}/config identifier=openconfig-policy-types:STATIC name=STATIC""",
    "route": f"""
{_ROUTE}{{prefix}}]/config prefix={{prefix}}
{_ROUTE}{{prefix}}]/next-hops/next-hop[index={{index}}]/config index={{index}} next-hop={{hop}}""",
}
"""What each thing is made of: the path of a container, and its leaves."""
_NUMBERS: Final = {"queue-id", "weight", "max-drop-probability-percent", "sequence"}
"""Leaves of at most 32 bits; JSON_IETF writes those of 64 bits as text."""
_IDENTITY: Final = re.compile(r"[a-z][a-z0-9-]*:([A-Z][A-Z0-9_]*)")
_OBJECT: Final = re.compile(rf"(/qos/[\w-]+/[\w-]+\[[\w-]+=[^\]]*\]|{re.escape(_ROUTE)}[^\]]*\])/")
"""What is replaced whole: a port, an object that ports refer to, or a route."""
_TERM: Final = re.compile(r"/terms/term\[id=([0-9])\]/conditions/ipv4/config/dscp-set")
_BARE_QUEUE: Final = re.compile(r"/output/queues/queue\[[^/]*/config/name$")
"""A leaf that says no more than that a port has a queue of this name."""
_PLAIN: Final = re.compile(r"[\w/.=\[\]-]+")
_QUEUE_ID: Final = re.compile(
    rf"/qos/queues/queue\[name=((?!{_NAME}|(?:STRICT|QUEUE|IPV.)\])[\w.-]+)\]/config/queue-id"
)
"""Of a queue that is somebody else's, or as delivered, and whose name is no other word of ours."""


def text_of(value: Any) -> Any:
    """A value as it is compared: some devices write numbers as text, and identities without their module."""
    if isinstance(value, list):
        return tuple(sorted(map(text_of, value)))
    if isinstance(value, bool):
        return str(value).lower()
    identity = _IDENTITY.fullmatch(value) if isinstance(value, str) else None
    return identity[1] if identity else str(value)


def flatten(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of JSON below a path, as (path, value); raises ValueError where a list has no keys.

    Scalars of a list's entry are its keys, by OpenConfig's style; each is also a leaf of its `config`.
    """
    for qualified, value in tree.items():
        here = f"{path}/{qualified.rpartition(':')[2]}"
        if len(here) > _LONGEST:
            raise ValueError(f"{here[:120]!r} is longer than {_LONGEST} characters")
        if isinstance(value, dict):
            yield from flatten(value, here)
        elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            for entry in value:
                scalars = {name: each for name, each in entry.items() if not isinstance(each, dict | list)}
                keys = sorted((name.rpartition(":")[2], text_of(each)) for name, each in scalars.items())
                place = here + "".join(f"[{name}={key}]" for name, key in keys)
                if PART.sub("", place) or not keys:
                    raise ValueError(f"{place[:120]!r} is no entry of a list")
                yield from flatten(entry, place)
        elif not path.endswith("]"):
            yield here, value


def nest(leaves: Mapping[str, Any], root: str = "") -> dict[str, Any]:
    """The inverse of `flatten`: JSON_IETF below a path, with the module in its top names."""
    tree: dict[str, Any] = dict(KEY.findall(root.rpartition("/")[2]))
    nodes = {root: tree}
    for path, value in leaves.items():
        above, node, parent = root, tree, tree
        for match in PART.finditer(path, len(root)):
            name = f"{_MODULES[path.split('/')[1]]}:{match[1]}" if above == root else match[1]
            above += match[0]
            if above == path:
                node[name] = value
                if name in parent:  # the key of an entry, which has the type of this leaf
                    parent[name] = value
            elif above not in nodes:
                nodes[above] = inner = dict(KEY.findall(match[2]))
                node.setdefault(name, []).append(inner) if inner else node.update({name: inner})
            parent, node = node, nodes.get(above, node)
    return tree


def adapt(fitted: FittedState, plan: Plan, switch: Switch) -> FittedState:
    """The state as these models can hold it: no ports in routes, and only background on untrusted ports."""
    state = without_route_ports(fitted, plan, switch).state
    ports = list(state.ports)
    for place, port in enumerate(ports):
        if not port.trusted:
            *others, last = (replace(queue, dscps=()) for queue in port.queues)
            ports[place] = replace(port, queues=(*others, replace(last, dscps=tuple(range(DSCP_COUNT)))))
    no_limit = (
        "each queue may grow as far as the device lets it: no source says what a limit of its own "
        "(buffer-allocation-profile) may be on this chip"
    )
    unsupported = (*fitted.unsupported, no_limit)
    return replace(fitted, state=replace(state, ports=tuple(ports)), unsupported=unsupported)


def _written(what: str, **values: Any) -> Leaves:
    leaves: Leaves = {}
    names = {"queue": f"{_NAME}queue-{values.get('n')}", "group": f"{_NAME}group-{values.get('n')}"}
    for line in _LAYOUT[what].splitlines()[1:]:
        path, *fields = line.format(**names, **values).split(" ")
        for name, _, text in (field.partition("=") for field in fields):
            value: Any = int(text) if name in _NUMBERS else text
            if name == "dscp-set":
                value = list(map(int, text.split(",")))
            leaves[f"{path}/{name}"] = value == "true" if value in ("true", "false") else value
    return leaves


def leaves_of(state: SwitchState) -> Leaves:
    """Every leaf that a state needs."""
    leaves: Leaves = {}
    for port in state.ports:
        leaves |= _port_leaves(port)
    index: dict[IPv4Network, int] = {}
    for route in state.routes:
        leaves |= _written("static") if not index else {}
        index[route.prefix] = index.get(route.prefix, -1) + 1
        hop = "openconfig-local-routing:DROP" if route.discards else address_text(route.next_hop)
        leaves |= _written("route", prefix=network_text(route.prefix), index=index[route.prefix], hop=hop)
    return leaves


@lru_cache(maxsize=256)
def _port_leaves(port: PortState) -> Leaves:
    """What a port is bound to, and the objects that this takes."""
    strict = "-".join((f"{_NAME}strict", *(str(queue.queue) for queue in port.queues)))
    leaves = _written("port", port=port.name, strict=strict)
    for place, queue in enumerate(port.queues):
        leaves |= _written("queue", n=queue.queue)
        leaves |= _written("service", n=queue.queue, port=port.name, strict=strict, place=place)
        if size := queue.ecn_threshold_bytes:
            leaves |= _written("red", n=queue.queue, port=port.name, red=f"{_NAME}red-{size}", size=size)
    led = {queue.queue: ",".join(map(str, queue.dscps)) for queue in port.queues if queue.dscps}
    for family in ("ipv4", "ipv6"):
        spread = f"{_NAME}{family}-{zlib.crc32(repr(led).encode()):08x}"
        leaves |= _written("spread", port=port.name, spread=spread, kind=family.upper())
        for number, dscps in led.items():
            leaves |= _written("term", n=number, spread=spread, family=family, dscps=dscps)
    return leaves


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """The one file `mltswitch.json`: the content of an update of the device's root."""
    del capabilities
    text = json.dumps(nest(leaves_of(state)), indent=1)
    return {FILE: re.sub(r"(?<=[\[\d])\s+(?=[\d\]])|(?<=\d,)\s+(?=\d)", "", text) + "\n"}  # lists on one line


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Read the files of `write_files` back as a state; each error names a leaf."""
    del capabilities
    ports: list[PortState] = []
    try:
        tree = json_in(files[FILE])
        leaves = dict(flatten(tree))
        for path, value in leaves.items():
            if path.startswith(_PORT) and path.endswith("]/output/scheduler-policy/config/name"):
                queues = [int(number) for number in value.removeprefix(f"{_NAME}strict-").split("-")]
                found = _port(leaves, path[len(_PORT) :].partition("]")[0], queues)
                ports.append(replace(found, unexpected=()))
        state = SwitchState(tuple(ports), tuple(_routes(leaves)))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise LineError(0, "", f"is no document of ours: {error}") from None
    needed = leaves_of(state)
    odd = [f"{path} is {value!r}" for path, value in leaves.items() if not _has(needed, path, value)]
    odd += [f"{path} is missing" for path in needed if path not in leaves]
    if odd:
        raise FileError([LineError(0, "", printable(each)) for each in odd])
    if tree != nest(needed):
        raise LineError(0, "", "a module's name, a list's key or the type of a value is not that of RFC 7951")
    return state


def _has(leaves: Leaves, path: str, value: Any) -> bool:
    return path in leaves and text_of(leaves[path]) == text_of(value)


def _object_of(path: str) -> str:
    """The object, port or route that a leaf belongs to; empty: none."""
    match = _OBJECT.match(path)
    return match[1] if match else ""


_Names = list[tuple[str, str]]
"""Words of a device and ours for the same thing, as they stand in JSON."""


def _running(answers: Mapping[str, str], wanted: SwitchState) -> tuple[Leaves, Leaves, _Names]:
    """(what a device has configured, state that is not as configured, its names); raises DeviceError."""
    names: _Names = []
    with known_form(QOS):
        planned = {queue.queue for port in wanted.ports for queue in port.queues}
        for path, value in json_in(answers[QOS]).items():
            if (match := _QUEUE_ID.fullmatch(path)) and int(value) in planned:
                own = f"{_NAME}queue-{value}"
                if any(f'"{own}"' == ours for _, ours in names):
                    raise ValueError(f"two queues have the number {value}")
                names += [(f"queue[name={match[1]}]", f"queue[name={own}]"), (f'"{match[1]}"', f'"{own}"')]
        leaves = dict(json_in(_learnt(answers[QOS], names)).items())
    with known_form(INSTANCES):
        kinds = json_in(answers[INSTANCES]).items()
        instances = [KEY.findall(path)[0][1] for path, kind in kinds if text_of(kind) == "DEFAULT_INSTANCE"]
    with known_form(ROUTES):
        keys = [[key for _, key in KEY.findall(path)] for path in json_in(answers[ROUTES])]
        first = next((each for each in keys if each[0] in instances), [*instances, "DEFAULT"][:1])
        words = _STATIC.replace("=DEFAULT", f"={first[0]}")
        words = words.replace("name=STATIC", f"name={[*first, '', 'STATIC'][2]}")
        if not _PLAIN.fullmatch(words):
            raise ValueError(f"{words!r} is no name")
        names.append((words, _STATIC))
        leaves |= {
            f"{_STATIC}{path.removeprefix(words)}": value
            for path, value in json_in(answers[ROUTES]).items()
            if path.startswith(f"{words}/")
        }
    leaves = {path: value for path, value in leaves.items() if path.startswith(("/qos/", f"{_STATIC}/"))}
    if any(path.startswith(_STATIC) for path in leaves):
        leaves[f"{_STATIC}/config/name"] = "STATIC"
    lagging = {path: value for path, value in leaves.items() if path.rpartition("/")[0].endswith("/state")}
    return {path: leaves[path] for path in leaves if path not in lagging}, lagging, names


def _learnt(text: str, names: _Names) -> str:
    """The device's words become ours, as keys of queues and where a leaf names a queue, and nowhere else."""
    for old, new in names:
        text = (
            re.sub(rf'(/(?:name|queue|output-queue)": ){re.escape(old)}', rf"\g<1>{new}", text)
            if old.startswith('"')
            else text.replace(old, new)
        )
    return text


def _renamed(text: str, names: _Names) -> str:
    for old, new in names:
        text = text.replace(old, new)
    return text


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """The queries for the device's models, its configuration, and the ports in aggregation groups."""
    del wanted
    return (CAPABILITIES, QOS, INSTANCES, ROUTES, MEMBERS)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """The running state of the wanted ports and queues, and the routes within the plan.

    Raises DeviceError where the device lacks a model, or a port is a member of a link aggregation group.
    """
    del capabilities
    with known_form(CAPABILITIES):
        models = json_in(answers[CAPABILITIES])["models"]
        lacks = [module for module in _MODULES.values() if module not in models]
        version = models.get(_MODULES["qos"], "0.8")
        lacks += [f"openconfig-qos 0.8.0 ({version})"] * (tuple(map(int, version.split(".")[:2])) < _OLDEST)
    if lacks:
        hint = "a newer release may have it; some devices have to be told to serve OpenConfig's models"
        raise DeviceError(f"does not have the model {printable(lacks[0])}", where=CAPABILITIES, hint=hint)
    with known_form(MEMBERS):
        groups = {KEY.findall(path)[0][1]: value for path, value in json_in(answers[MEMBERS]).items()}
    for port in wanted.ports:
        if port.name in groups:
            raise PreflightError(
                f"is a member of {groups[port.name]}: nobody has told whose queues and classifiers count",
                where=f"port {port.name}",
                hint="take it out first, or leave it out of the fabric",
            )
    with known_form(QOS):
        leaves, lagging, _ = _running(answers, wanted)
        state, needed = _state(leaves, wanted), leaves_of(wanted)
    unapplied = tuple(
        printable(f"{path} is {value}, which is not what is configured")
        for path, value in lagging.items()
        if "/config/".join(path.rsplit("/state/", 1)) in needed
    )
    return RunningState(replace(state, unexpected=unapplied), answers)


def _state(leaves: Leaves, wanted: SwitchState) -> SwitchState:
    ports = tuple(_port(leaves, port.name, [queue.queue for queue in port.queues]) for port in wanted.ports)
    return SwitchState(ports, in_order_of(wanted.routes, _routes(leaves, OwnPrefixes(wanted.routes))))


def _is_reference(leaf: str) -> bool:
    """Whether it says which port an object of `/qos/interfaces` is about."""
    return leaf.startswith(_PORT) and leaf.endswith("/interface-ref/config/interface")


def _port(leaves: Leaves, name: str, queues: Sequence[int]) -> PortState:
    """State of some queues of one port; what that state does not explain is unexpected. Raises ValueError."""
    path, led = f"{_PORT}{name}]", dict[int, tuple[int, ...]]()
    spread = leaves.get(f"{path}/input/classifiers/classifier[type=IPV4]/config/name")
    place = _CLASSIFIER.format(spread=spread)
    for leaf, value in leaves.items():
        if leaf.startswith(place) and (match := _TERM.fullmatch(leaf, len(place))):
            led[int(match[1])] = tuple(sorted(map(int, value)))
    states: list[QueueState] = []
    for number in queues:
        bound = f"{path}/output/queues/queue[name={_NAME}queue-{number}]/config/queue-management-profile"
        curve = f"{_RED.format(red=leaves.get(bound))}/wred/uniform/config/min-threshold"
        threshold = int(leaves.get(curve, 0)) or None
        states.append(QueueState(number, led.get(number, ()), threshold, Unlimited()))
    port = PortState(name, any(queue.dscps for queue in states[:-1]), None, tuple(states))
    needed = _port_leaves(port)
    objects = set(map(_object_of, needed))
    odd = [
        printable(f"{leaf} is {value}")
        for leaf, value in leaves.items()
        if (_object_of(leaf) in objects and not _has(needed, leaf, value) and not _BARE_QUEUE.search(leaf))
        or (_is_reference(leaf) and value == name and leaf not in needed)
    ]
    return replace(port, unexpected=tuple(odd))


def _routes(leaves: Leaves, own: Container[IPv4Network] | None = None) -> Iterator[RouteState]:
    """Routes to prefixes of ours; `port` holds whatever else a route says. Raises ValueError."""
    hops: dict[str, list[str]] = {}
    others: dict[str, str] = {}
    for path, value in leaves.items():
        prefix, _, rest = path.removeprefix(_ROUTE).partition("]")
        if not path.startswith(_ROUTE) or ":" in prefix or (own and ipv4_network(prefix) not in own):
            continue
        if rest.endswith("/config/next-hop"):
            hops.setdefault(prefix, []).append(text_of(value))
        elif not rest.endswith(("/config/index", "/config/prefix")):
            others[prefix] = printable(f"{others.get(prefix, '')} {rest.rpartition('/')[2]} {value}".lstrip())
    for prefix, values in hops.items():
        for hop in values:
            address = NO_NEXT_HOP if hop == "DROP" else ipv4_address(hop)
            yield RouteState(ipv4_network(prefix), address, others.get(prefix, ""))


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """The change to the wanted state in one SetRequest: mltswitch's objects, and what ports are bound to."""
    del capabilities
    now, _, names = _running(running.answers, wanted)
    after = _after(now, wanted, leaves_of(wanted))
    return replace(_change(now, after, names), stays=differences(wanted, _state(after, wanted)))


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """The change, in one SetRequest, that restores all that a push of the wanted state sets or removes."""
    del capabilities
    now, _, names = _running(running.answers, wanted)
    was, needed = _running(before, wanted)[0], leaves_of(wanted)
    then = {path: value for path, value in was.items() if _is_ours(path, value, wanted, needed)}
    return _change(now, _after(now, wanted, then), names)


def _after(now: Leaves, wanted: SwitchState, then: Leaves) -> Leaves:
    """`then` in the place of all that is ours; objects that ports of nobody's plan still use stay."""
    needed = leaves_of(wanted)
    after = {path: value for path, value in now.items() if not _is_ours(path, value, wanted, needed)} | then
    gone = {_object_of(path) for path in now} - {_object_of(path) for path in after}
    objects = {KEY.findall(path)[0][1]: path for path in gone if f"[name={_NAME}" in path}
    leaves: dict[str, Leaves] = {}
    for path, value in now.items():
        leaves.setdefault(_object_of(path), {})[path] = value
    used = [str(value) for value in after.values()]
    while used:
        kept = leaves.get(objects.pop(used.pop(), "-"), {})
        after |= kept
        used += map(str, kept.values())
    return after


def _is_ours(path: str, value: Any, wanted: SwitchState, needed: Leaves) -> bool:
    if path.startswith(_ROUTE):
        prefix = path[len(_ROUTE) :].partition("]")[0]
        return ":" not in prefix and ipv4_network(prefix) in OwnPrefixes(wanted.routes)
    if path.startswith(_PORT):
        is_planned = any(path.startswith(f"{_PORT}{port.name}]") for port in wanted.ports)
        return path in needed or (is_planned and str(value).startswith(_NAME))
    return f"[name={_NAME}" in _object_of(path)


def _change(now: Leaves, after: Leaves, names: _Names) -> Change:
    """Deletes and replaces whole objects: of a port, too, with what is not ours on it as it is."""
    changed = [path for path in after if not _has(now, path, after[path])]
    objects = dict.fromkeys(map(_object_of, (*changed, *(path for path in now if path not in after))))
    then: dict[str, Leaves] = {path: {} for path in objects if path}
    for path, value in after.items():
        if (place := _object_of(path)) in then:
            then[place][path] = value
    request: dict[str, list[Any]] = {
        "delete": [path for path, leaves in then.items() if not leaves],
        "replace": [(path, nest(leaves, path)) for path, leaves in then.items() if leaves],
        "update": [(_STATIC, nest(_written("static"), _STATIC))]
        if f"{_STATIC}/config/name" in changed
        else [],
    }
    back = [(ours, theirs) for theirs, ours in names]
    lines = [f"delete {path}" for path in request["delete"]]
    lines += [f"replace {path} {json.dumps(tree)}" for path, tree in request["replace"]]
    text = "".join(f"{printable(_renamed(line, back))}\n" for line in lines)
    return Change((Step(SET, _renamed(json.dumps(request), back)),) if lines else (), text=text)


def identify(answers: Mapping[str, str]) -> Identity:
    """The identity that the switch reports; raises DeviceError."""
    said: dict[str, str] = {}
    for query in (CHASSIS, SYSTEM):
        with known_form(query):
            said |= {path.rpartition("/")[2]: str(value) for path, value in json_in(answers[query]).items()}
    model = said.get("part-no", "") or said.get("description", "")
    return Identity(
        said.get("hostname", ""), said.get("serial-no", ""), model, said.get("software-version", "")
    )
