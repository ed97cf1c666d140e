import pytest

from mltswitch.errors import UserInputError
from mltswitch.targets import PortState, SwitchState, targets
from mltswitch.targets.common import checked_render


@pytest.mark.parametrize("platform", targets())
def test_unknown_hardware_is_refused_with_the_known_models(platform: str) -> None:
    target = targets()[platform]
    with pytest.raises(UserInputError, match=f"unknown hardware 'x' for platform {platform}") as caught:
        target.hardware("x")
    known = caught.value.expected.removeprefix("one of ").split(", ")
    assert target.hardware(None).hardware in known


def test_files_that_say_something_else_never_leave() -> None:
    state, other = SwitchState((), ()), SwitchState((PortState("eth1", True, None, ()),), ())
    assert checked_render({"a": ""}, lambda files: state, state) == {"a": ""}
    with pytest.raises(UserInputError, match=r"^a, b: what is rendered does not say"):
        checked_render({"a": "", "b": ""}, lambda files: other, state)
