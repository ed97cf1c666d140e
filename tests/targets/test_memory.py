import pytest

from mltswitch.errors import UserInputError
from mltswitch.targets.memory import remembering_last


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
