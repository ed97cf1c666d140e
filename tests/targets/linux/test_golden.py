"""Files and answers kept as they were: the text an operator sees changes only on purpose."""

import json
from pathlib import Path

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import SwitchState
from mltswitch.targets.linux import TARGET

GOLDEN = Path(__file__).parent / "golden"


def test_rendered_files(state: SwitchState) -> None:
    rendered = TARGET.render(state)
    assert rendered == {name: (GOLDEN / name).read_text() for name in rendered}


def answers() -> dict[str, str]:
    """What Linux 6.1 with iproute2 6.1 answered when it ran the golden files."""
    recorded: dict[str, str] = json.loads((GOLDEN / "answers.json").read_text())
    return recorded


def test_recorded_answers_are_the_plan(state: SwitchState) -> None:
    assert tuple(answers()) == TARGET.queries(state)
    found = TARGET.read(answers(), state)
    assert found.state == state
    assert TARGET.diff(found, state).is_empty


def test_other_spellings_of_newer_tools_are_read(state: SwitchState) -> None:
    spelled = {
        query: text.replace('"ip_tos_mask":"fc"', '"ip_tos_mask":252').replace(
            '"ip_tos":192', '"ip_tos":"0xc0"'
        )
        for query, text in answers().items()
    }
    assert spelled != answers()
    assert TARGET.read(spelled, state).state == state


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("qdisc prio 10: root", "cannot be read"),
        ('[{"kind": "prio"}]', "handle"),
        ("{}", "cannot be read"),
    ],
)
def test_an_answer_that_is_no_list_of_queues_is_the_devices_fault(
    state: SwitchState, text: str, problem: str
) -> None:
    with pytest.raises(DeviceError, match=problem):
        TARGET.read(answers() | {"tc -j -d qdisc show": text}, state)


def test_a_query_that_was_never_answered(state: SwitchState) -> None:
    with pytest.raises(DeviceError, match="was not answered"):
        TARGET.read({}, state)


def test_routes_of_another_family_are_refused(state: SwitchState) -> None:
    route = json.dumps([{"dst": "fd00::/64", "dev": "eth1", "gateway": "10.0.0.1"}])
    with pytest.raises(DeviceError, match="no IPv4 prefix"):
        TARGET.read(answers() | {"ip -j route show proto 173": route}, state)


def test_a_default_route_of_ours_is_seen(state: SwitchState) -> None:
    route = json.dumps([{"dst": "default", "dev": "eth1", "gateway": "10.0.0.1"}])
    found = TARGET.read(answers() | {"ip -j route show proto 173": route}, state)
    assert str(found.state.routes[0].prefix) == "0.0.0.0/0"
