"""Whatever a user's code raises has words that can be sent."""

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.errors import TaggingError
from mltswitch.hostagent.words import words_of


class Speechless(BaseException):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no idea"), "raised ValueError: no idea"),
        (ValueError("a \ud800 b \U0001f600"), "raised ValueError: a ? b \U0001f600"),
        (KeyError("a"), "raised KeyError: 'a'"),
        (ValueError(), "raised ValueError"),
        (SystemExit(2), "raised SystemExit: 2"),
        (Speechless(), "raised Speechless, whose text cannot be had"),
        (UserInputError("no idea", where="mine", hint="think"), "mine: no idea. Think"),
        (TaggingError("no idea"), "no idea"),
    ],
)
def test_words_of(error: BaseException, words: str) -> None:
    assert words_of(error) == words
