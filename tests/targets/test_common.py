from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from mltswitch.errors import UserInputError
from mltswitch.targets import RouteState, SwitchState, target_for, targets


@pytest.mark.parametrize("platform", targets())
def test_unknown_hardware_is_refused_with_the_known_models(platform: str) -> None:
    target = targets()[platform]
    with pytest.raises(UserInputError, match=f"unknown hardware 'x' for platform {platform}") as caught:
        target.hardware("x")
    known = caught.value.expected.removeprefix("one of ").split(", ")
    assert target.hardware(None).hardware in known


def test_files_that_say_something_else_never_leave() -> None:
    target = replace(target_for("onyx"), read_files=lambda files, capabilities: SwitchState((), ()))
    wanted = SwitchState((), (), packet_spraying=False)
    assert target.render(wanted, target.hardware(None))
    route = RouteState(IPv4Network("10.0.0.0/8"), IPv4Address("10.1.0.1"), "")
    with pytest.raises(UserInputError, match=r"^mltswitch.txt: what is rendered does not say"):
        target.render(replace(wanted, routes=(route,)), target.hardware(None))


def test_all_wrong_lines_of_a_file_are_told_at_once() -> None:
    target = target_for("onyx")
    with pytest.raises(UserInputError, match=r"^mltswitch\.txt:1: not a line.*'reload'; line 3: .*'write'"):
        target.parse({"mltswitch.txt": "reload\n## fine\nwrite\n"}, target.hardware(None))
