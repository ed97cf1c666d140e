import pytest

from mltswitch.errors import UserInputError
from mltswitch.targets import PortState, SwitchState, targets
from mltswitch.targets.common import checked_render
from mltswitch.targets.memory import remembering_last


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


def test_the_last_result_alone_is_remembered_and_no_error() -> None:
    asked: list[tuple[int, ...]] = []

    @remembering_last
    def total(numbers: tuple[int, ...]) -> int:
        asked.append(numbers)
        if not numbers:
            raise UserInputError("nothing to add")
        return sum(numbers)

    assert [total((1, 2)), total((1, *[2])), total((3,)), total((1, 2))] == [3, 3, 3, 3]
    assert asked == [(1, 2), (3,), (1, 2)]
    for _ in range(2):
        with pytest.raises(UserInputError, match="nothing to add"):
            total(())
    assert asked[3:] == [(), ()]
    assert total((1, 2)) == 3
    assert len(asked) == 5
