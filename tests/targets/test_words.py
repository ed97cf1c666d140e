"""Words of a switch that no release is known to say are quoted, never taken for the harmless ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import Neighbour, RunningState, target_for
from mltswitch.targets.common import known_form
from switchsim import EosDevice, IcosDevice, OnyxDevice, SonicDevice
from tests.targets.eos import device as eos
from tests.targets.eos.test_eos import STATE as EOS_STATE
from tests.targets.icos import device as icos
from tests.targets.icos.test_icos import STATE as ICOS_STATE
from tests.targets.onyx import device as onyx
from tests.targets.onyx.test_onyx import STATE as ONYX_STATE
from tests.targets.sonic import device as sonic
from tests.targets.sonic.test_sonic import STATE as SONIC_STATE


def _paused(device: OnyxDevice) -> OnyxDevice:
    assert device.configure("dcb priority-flow-control enable force") == ""
    return device


READ: Final[dict[str, tuple[Callable[[], RunningState], Any]]] = {
    "eos": (lambda: eos.read(EosDevice(), EOS_STATE), EOS_STATE),
    "icos": (lambda: icos.read(IcosDevice(), ICOS_STATE), ICOS_STATE),
    "onyx": (lambda: onyx.read(_paused(OnyxDevice()), ONYX_STATE), ONYX_STATE),
    "sonic": (lambda: sonic.read(SonicDevice(), SONIC_STATE), SONIC_STATE),
}


@dataclass(frozen=True)
class Case:
    """A word in the place of one that an emulated switch answers."""

    platform: str
    query: str
    said: str
    instead: str
    told: str


_PFC: Final = "show dcb priority-flow-control | json-print"
_RUNNING: Final = "show running-config"
_ALL: Final = "show runningconfiguration all"
CASES: Final = (
    Case("onyx", _PFC, '"PFC": "enabled"', '"PFC": "pending"', f"{_PFC}: PFC is 'pending'"),
    Case("onyx", _PFC, '"PFC oper": "Disabled"', '"PFC oper": "Stopped"', "PFC oper is 'stopped'"),
    Case(
        "onyx", "show qos interface ethernet 1/1 | json-print", '"disabled"', '"maybe"', "rewrite is 'maybe'"
    ),
    Case("onyx", "show configuration files", "changes : yes", "changes : some", "Unsaved changes is 'some'"),
    Case("eos", _RUNNING, "\nend\n", "\n", "is cut short: '!' is its last line"),
    Case(
        "icos",
        _RUNNING,
        "configure\n",
        "configure\ninterface te1/0/1\ndatacenter-bridging\npriority-flow-control mode forced\nexit\nexit\n",
        "priority-flow-control mode forced is 'forced'",
    ),
    Case(
        "icos",
        _RUNNING,
        "configure\n",
        "configure\ninterface te1/0/1\ndatacenter-bridging\npriority-flow-control priority all no-drop\n"
        "exit\nexit\n",
        "cannot read 'priority-flow-control priority all no-drop'",
    ),
    Case("sonic", _ALL, '"Ethernet0": {', '"Ethernet0": {"pfc_asym": "auto",', "pfc_asym is 'auto'"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.platform} {case.instead[-30:]}")
def test_an_unknown_word_is_quoted(case: Case) -> None:
    made, wanted = READ[case.platform]
    target, answers = target_for(case.platform), dict(made().answers)
    assert case.said in answers[case.query]
    answers[case.query] = answers[case.query].replace(case.said, case.instead)
    with pytest.raises(DeviceError) as caught:
        target.read(answers, wanted, target.hardware(None))
    assert case.told in str(caught.value)


@pytest.mark.parametrize(
    ("platform", "answer"),
    [
        ("cumulus", "Interface  Remote Host  Remote Port\n---------  -----------  -----------\nswp1  a  b\n"),
        ("cumulus", "Error: LLDP is not running\n"),
        ("icos", "LLDP is disabled globally.\n"),
        ("sonic", '{"neighbours": []}'),
        ("eos", "{}"),
    ],
)
def test_neighbours_in_an_unknown_form_are_not_taken_for_none(platform: str, answer: str) -> None:
    read = target_for(platform).neighbours
    assert read is not None
    found: list[Neighbour] = []
    with pytest.raises(DeviceError, match="another form than known"), known_form("LLDP"):
        found += read(answer)
    assert not found
