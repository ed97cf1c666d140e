"""Any YAML value anywhere in a fabric file gives a plan or one line."""

import copy
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import Capabilities
from mltswitch.documents import parse_yaml, validate
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import bundled_profile
from tests.plan.examples import LISTED, SMALL
from tests.planning.test_build import QUEUES_OF, capabilities

Path = tuple[str | int, ...]


def _full(base: dict[str, Any]) -> dict[str, Any]:
    """The document with every default and every optional part written out."""
    data = copy.deepcopy(base)
    data["ports"] |= {"overrides": {"leaf-down": {"rate": "25Mbps", "buffer": "300kB", "load": 1.1}}}
    data["ports"]["buffer"] = "200kB"
    data["trusted_ports"] = ["leaf1:eth1"]
    data["traffic"]["source_rate_ratio"] = 1.0
    data["classes"]["gradients"] = {"dscp": [10, 12], "queues": 2}
    data["classes"]["control"] |= {"load": 0.005, "limit_packets": 32}
    data["classes"]["network_control"] = {"dscp": [48, 56], "load": 0.001, "limit_packets": 16}
    data["classes"]["background"] = {
        "dscp": [0],
        "load": 0.0,
        "guaranteed_share": 0.05,
        "limit_packets": 32,
    }
    data["addressing"]["leaf_stride"] = 64
    data["spraying"] = {"mode": "alias"}
    return data


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _paths(part, (*path, key))
    elif isinstance(value, list):
        for position, part in enumerate(value):
            yield from _paths(part, (*path, position))


BASES = [_full(SMALL), _full(LISTED)]
PLACES = [(number, path) for number, base in enumerate(BASES) for path in _paths(base)]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 100)
    | st.sampled_from([10**18, 10**30, 10**39, 4096, 65536, 2.5e10, 1e308, 5e-324, "", "all", "25Gbps"])
    | st.floats()
    | st.dates()
    | st.binary(max_size=8)
    | st.text(max_size=20)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=2)


@settings(max_examples=60, deadline=None)
@given(place=st.sampled_from(PLACES), value=VALUES)
@example(place=(0, ("ports", "rate")), value=2.5e10)
@example(place=(0, ("ports", "rate")), value=None)
@example(place=(0, ("ports", "rate")), value=True)
@example(place=(0, ("ports", "rate")), value=10**39)
@example(place=(0, ("ports", "buffer")), value=[1])
@example(place=(0, ("ports", "buffer")), value=10**18)
@example(place=(0, ("classes", "network_control", "dscp")), value=[])
@example(place=(0, ("classes", "background", "dscp")), value=[])
@example(place=(1, ("topology", "links")), value=[])
@example(place=(1, ("topology", "switches", 2, "platform")), value="all")
def test_any_value_gives_a_plan_or_one_line(place: tuple[int, Path], value: Any) -> None:
    number, path = place
    data = copy.deepcopy(BASES[number])
    inner: Any = data
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    try:
        read = parse_yaml(yaml.safe_dump(data, allow_unicode=True), where="fabric.yaml")
        fabric = validate(read, Fabric, where="fabric.yaml")
        plan = build_plan(bundled_profile("alexnet"), fabric, _capabilities)
    except MltswitchError as error:
        assert "\n" not in str(error)
        return
    assert validate(plan.model_dump(mode="json", by_alias=True), Plan, where="plan") == plan


def _capabilities(platform: str, hardware: str | None) -> Capabilities:
    if platform not in QUEUES_OF:  # as of a platform that there is not
        raise UserInputError(f"{platform!r} is unknown", where="platform")
    return capabilities(platform, hardware)
