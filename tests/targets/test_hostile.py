"""Hostile values in every field of every document that a renderer reads from, and in every state.

The fields come from the models themselves, so that a new one is attacked from its first day. A value is
refused by a line that names document and field, or (free text of a plan) changes no rendered byte.
"""

import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from mltswitch.cli import main
from mltswitch.documents import dump_yaml, validate
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.inventory import load_inventory
from mltswitch.inventory.variables import NEVER_SHOWN, Used
from mltswitch.plan import Fabric, Plan
from mltswitch.targets import SwitchState, target_for, targets
from mltswitch.targets.state import RouteState
from tests.conftest import MIXED_FABRIC

HOSTILE = {
    "line end": "leaf1\nreload",
    "carriage return": "leaf1\rreload",
    "line separator": "leaf1\u2028reload",
    "trailing line end": "leaf1\n",
    "trailing line end of a number": "10\n",
    "semicolon": "leaf1; reboot",
    "ampersand": "leaf1&reboot",
    "pipe": "leaf1|sh",
    "double quote": 'leaf1" reload "',
    "single quote": "leaf1' reload '",
    "backtick": "`reboot`",
    "substitution": "$(reboot)",
    "escape": "leaf1\x1b[2J",
    "jinja": "{{ cycler.__init__.__globals__ }}",
    "jinja statement": "{% for i in range(9) %}x{% endfor %}",
    "long": "a" * 10_240,
    "long number": "1" * 10_240,
    "full-width digits": "\uff11\uff10",
    "full-width letters": "\uff4c\uff45\uff41\uff46\uff11",
    "arabic digits": "\u0661\u0660",
    "cyrillic": "le\u0430f1",
    "zero width": "leaf1\u200b",
    "right to left": "\u202eleaf1",
    "nul": "leaf1\0",
    "delete": "leaf1\x7f",
    "traversal": "../../etc/passwd",
    "option": "-oProxyCommand=reboot",
}
OWN_LANGUAGE = {"full-width digits", "full-width letters", "arabic digits", "cyrillic", "traversal", "option"}
"""What the name of a file on the user's own machine may look like; it reaches no device."""
KEY = "<key>"
ITEM = 0

ABSENT = {"models": {"leaf1": {"platform": "linux"}}, "port_names": {"pattern": "eth{n}"}}
"""What stands around an attacked value, where the document has nothing there."""

Field = tuple[str | int, ...]


def fields_of(model: type[BaseModel]) -> list[Field]:
    """Where a document has a value of its own, or a name of the user's choice for one."""
    schema = model.model_json_schema(by_alias=True)
    return sorted(set(_walk(schema, schema, ())), key=str)


def _walk(node: dict[str, Any], schema: dict[str, Any], above: Field) -> Iterator[Field]:
    if "$ref" in node:
        yield from _walk(schema["$defs"][node["$ref"].rpartition("/")[2]], schema, above)
        return
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        yield from _walk(choice, schema, above)
    for name, inner in node.get("properties", {}).items():
        yield from _walk(inner, schema, (*above, name))
    values = node.get("additionalProperties")
    if isinstance(values, dict) or "patternProperties" in node:
        yield (*above, KEY)
        for inner in (values or {}, *node.get("patternProperties", {}).values()):
            yield from _walk(inner, schema, (*above, KEY, ""))
    items = (node.get("items"), *node.get("prefixItems", ()))
    for inner in items:
        if isinstance(inner, dict):
            yield from _walk(inner, schema, (*above, ITEM))
    if node.get("type") in {"string", "integer", "number", "boolean"} or {"const", "enum"} & node.keys():
        yield above


def attacked(document: Any, field: Field, value: str) -> Any:
    """A copy of the document with the value in this place."""
    data = copy.deepcopy(document)
    place = data
    steps = [step for step in field if step != ""]
    for position, step in enumerate(steps[:-1]):
        following = steps[position + 1]
        if step == KEY:
            step = next(iter(place), "leaf1")  # noqa: PLW2901  (any of them)
        if step == ITEM:
            # The first that has what comes next: not every class has layers.
            found = (n for n, entry in enumerate(place) if entry.get(following) is not None)
            step = next(found, ITEM)  # noqa: PLW2901  (the same step, where a list stands)
        if following == ITEM and not (isinstance(place, dict) and isinstance(place.get(step), list)):
            place[step] = [None]
        elif isinstance(place, dict):
            place.setdefault(step, copy.deepcopy(ABSENT.get(step, {})))  # type: ignore[arg-type]  # a key or a number, as the document has it
        place = place[step]
    last = steps[-1]
    if last == KEY and field[-1] != "":
        name = next(iter(place), None)
        place[value] = place.pop(name) if name is not None else {}
    elif last == KEY:
        place[next(iter(place), "leaf-up")] = value
    elif place == []:
        place.append(value)
    else:
        place[last] = value
    return data


def named(field: Field) -> str:
    """What a refusal must name at least: the field, or the list or mapping that it is a part of."""
    names = [str(step) for step in field if step not in {"", KEY}]
    while names and names[-1] == str(ITEM):
        names.pop()
    return names[-1]


FABRIC = yaml.safe_load(MIXED_FABRIC.read_text(encoding="utf-8"))
MODEL = {"platform": "linux", "hardware": "software", "port_names": {"pattern": "eth{n}"}}
FABRIC["topology"]["leaf_spine"] = {
    tier: MODEL | {"count": 1, "name": f"extra{tier}", "models": {"leaf[1-2]": MODEL}}
    for tier in ("spines", "leaves", "cores")
} | {"hosts_per_leaf": 1, "host_ports": {}, "uplinks": {}, "core_links": {}}
FABRIC["topology"]["hosts"][0]["interfaces"] = {"eth0": {}}
FABRIC["memory"] = {"default": {"total": "16MB"}}
FABRIC["traffic"]["scenarios"] = [{"weight": 1}]
FABRIC["classes"]["network_control"] = {"dscp": [48, 56]}
FABRIC["classes"]["others"] = [{"name": "storage", "dscp": [8], "load": 0.1, "guaranteed_share": 0.1}]


def test_the_fabric_that_is_attacked_is_valid() -> None:
    assert isinstance(validate(FABRIC, Fabric, where="fabric.yaml"), Fabric)


@pytest.mark.parametrize("field", fields_of(Fabric), ids=lambda field: ".".join(map(str, field)))
def test_a_fabric(field: Field) -> None:
    for value in HOSTILE.values():
        with pytest.raises(UserInputError) as caught:
            validate(attacked(FABRIC, field, value), Fabric, where="fabric.yaml")
        line = str(caught.value)
        assert line.isprintable()
        assert line.startswith("fabric.yaml: ")
        assert named(field) in line, (field, value[:40])
        assert len(line) < 1000


@pytest.fixture(scope="module")
def plan_data(mixed_plan: Plan) -> Any:
    return json.loads(json.dumps(yaml.safe_load(dump_yaml(mixed_plan))))


def rendered(plan: Plan) -> dict[str, dict[str, str]]:
    """Every switch's files."""
    files: dict[str, dict[str, str]] = {}
    for switch in plan.topology.switches:
        target = target_for(switch.platform)
        fitted = target.fit_to_hardware(plan, switch.name)
        files[switch.name] = target.render(fitted.state, fitted.capabilities)
    return files


PLAN_FIELDS = [field for field in fields_of(Plan) if field[0] != "fabric"]


def is_taken(data: Any, field: Field, value: str) -> bool:
    """Whether a plan takes a value; a refusal names the field."""
    try:
        validate(data, Plan, where="plan.yaml")
    except UserInputError as error:
        line = str(error)
        assert line.isprintable()
        assert line.startswith("plan.yaml: ")
        assert named(field) in line, (field, value[:40])
        assert len(line) < 1000
        return False
    return True


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_plan(mixed_plan: Plan, plan_data: Any, attack: str) -> None:
    """What is taken is free text that reaches no renderer: all of it together changes no byte."""
    value = HOSTILE[attack]
    taken: Any = plan_data
    free: list[Field] = []
    for field in PLAN_FIELDS:
        if is_taken(attacked(plan_data, field, value), field, value):
            free.append(field)
            taken = attacked(taken, field, value)
    assert rendered(validate(taken, Plan, where="plan.yaml")) == rendered(mixed_plan)
    if not value.isprintable() or len(value) > 10_000:
        assert not free


@pytest.fixture
def small_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader of the base install: Ansible's takes a second, and there are hundreds of attacks."""
    monkeypatch.setattr("mltswitch.inventory.load.ansible_program", lambda: None)


def refused_inventory(folder: Path, text: str) -> str:
    (folder / "hosts.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserInputError) as caught:
        load_inventory(folder).select(None, {"leaf1"})
    line = str(caught.value)
    assert line.isprintable()
    assert line.startswith(str(folder))
    assert len(line) < 1000
    return line


def quoted(value: str) -> str:
    """As YAML can hold anything: escaped, in double quotes."""
    return json.dumps(value)


@pytest.mark.parametrize("platform", targets())
@pytest.mark.parametrize(
    "name", [name for name in Used.model_fields if name.startswith(("ansible", "mltsw"))]
)
@pytest.mark.usefixtures("small_loader")
def test_an_inventory_variable(tmp_path: Path, platform: str, name: str) -> None:
    for attack, value in HOSTILE.items():
        if name.endswith("_file") and attack in OWN_LANGUAGE:
            continue
        variables = {"ansible_user": '"admin"', "mltswitch_platform": quoted(platform)} | {
            name: quoted(value)
        }
        if name == "ansible_network_os":
            del variables["mltswitch_platform"]
        inner = ", ".join(f"{key}: {text}" for key, text in variables.items())
        line = refused_inventory(tmp_path, f"all: {{hosts: {{leaf1: {{{inner}}}}}}}\n")
        assert f"leaf1: {name}: " in line, (attack, line)
        if name.endswith(NEVER_SHOWN):
            assert value not in line


@pytest.mark.parametrize("attack", HOSTILE)
@pytest.mark.usefixtures("small_loader")
def test_names_in_an_inventory(tmp_path: Path, attack: str) -> None:
    value = quoted(HOSTILE[attack])
    if attack != "full-width digits":
        assert "plain name" in refused_inventory(tmp_path, f"all: {{hosts: {{? {value} : }}}}\n")
    assert "plain name" in refused_inventory(tmp_path, f"all: {{children: {{? {value} : }}}}\n")
    assert "section" in refused_inventory(tmp_path, f"all: {{? {value} : }}\n")


def strings_of(state: object, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a state holds text: field names and positions."""
    if isinstance(state, str):
        yield above
    elif isinstance(state, RouteState):
        for name, entry in state._asdict().items():
            yield from strings_of(entry, (*above, name))
    elif isinstance(state, tuple):
        for position, entry in enumerate(state[:2]):
            yield from strings_of(entry, (*above, position))
    elif dataclasses.is_dataclass(state) and not isinstance(state, type):
        for field in dataclasses.fields(state):
            # No text says what is not compared; `kind` of a limit says which class it is of.
            if field.compare and field.name != "kind":
                yield from strings_of(getattr(state, field.name), (*above, field.name))


def with_string(state: Any, place: tuple[Any, ...], value: str) -> Any:
    if not place:
        return value
    step, *rest = place
    if isinstance(step, int):
        return (*state[:step], with_string(state[step], tuple(rest), value), *state[step + 1 :])
    changed = {step: with_string(getattr(state, step), tuple(rest), value)}
    if isinstance(state, RouteState):
        return state._replace(**changed)
    return dataclasses.replace(state, **changed)


def test_every_platform_has_its_place_in_the_mixed_fabric(mixed_plan: Plan) -> None:
    assert {switch.platform for switch in mixed_plan.topology.switches} == set(targets())


@pytest.mark.parametrize("platform", targets())
def test_a_state_that_no_document_made(mixed_plan: Plan, platform: str) -> None:
    """A renderer trusts nobody above it: each text of a state is checked again where it becomes a line."""
    switch = next(entry for entry in mixed_plan.topology.switches if entry.platform == platform)
    target = target_for(platform)
    fitted = target.fit_to_hardware(mixed_plan, switch.name)
    state: SwitchState = fitted.state
    places = list(strings_of(state))
    assert ("ports", 0, "name") in places
    assert ("routes", 0, "port") in places
    for place in places:
        for attack, value in HOSTILE.items():
            with pytest.raises(MltswitchError) as caught:
                target.render(with_string(state, place, value), fitted.capabilities)
            assert str(caught.value).isprintable(), attack


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that fails."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert "bug" not in line
    assert line.isprintable()
    return line


@pytest.mark.parametrize("attack", HOSTILE)
def test_the_command_line_writes_nothing(
    plan_data: Any,
    mixed_inventory: Path,
    tmp_path: Path,
    attack: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    value, out = HOSTILE[attack], tmp_path / "out"
    fabric, plan, folder = tmp_path / "fabric.yaml", tmp_path / "plan.yaml", tmp_path / "inventory"
    folder.mkdir()
    fabric.write_text(json.dumps(attacked(FABRIC, ("topology", "links", 0, "a"), value)), encoding="utf-8")
    line = ended(capsys, "plan", "--profile", "vgg16", "--fabric", str(fabric), "-o", str(plan))
    assert line.startswith(f"mltswitch: {fabric}:1: topology.links[0].a: ")
    assert not plan.exists()
    plan.write_text(json.dumps(attacked(plan_data, ("classes", 0, "name"), value)), encoding="utf-8")
    line = ended(capsys, "render", str(plan), "-i", str(mixed_inventory), "-o", str(out))
    assert line.startswith(f"mltswitch: {plan}:1: classes[0].name: ")
    plan.write_text(json.dumps(plan_data), encoding="utf-8")
    host = f"mltswitch_platform: onyx, ansible_user: admin, ansible_host: {quoted(value)}"
    (folder / "hosts.yaml").write_text(f"all: {{hosts: {{leaf1: {{{host}}}}}}}\n", encoding="utf-8")
    line = ended(capsys, "render", str(plan), "-i", str(folder), "-o", str(out))
    assert line.startswith(f"mltswitch: {folder}/hosts.yaml: leaf1: ansible_host: ")
    assert not out.exists()
