"""The line discipline: the same lines however the bytes arrive."""

from hypothesis import given
from hypothesis import strategies as st

from switchsim.connection import MAX_LINE_CHARACTERS, Echo, EndOfInput, Line, LineEditor


def lines(*chunks: bytes) -> list[str]:
    editor = LineEditor()
    return [event.text for chunk in chunks for event in editor.feed(chunk) if isinstance(event, Line)]


def test_each_line_end_ends_one_line() -> None:
    assert lines(b"a\rb\nc\r\nd\n\n") == ["a", "b", "c", "d", ""]


def test_editing() -> None:
    assert lines(b"abx\x7fc\n", b"lost\x15kept\n", b"lost\x03", b"a\x1b[Ab\tc\n") == [
        "abc",
        "kept",
        "",
        "abc",
    ]


def test_echo_shows_what_was_typed() -> None:
    editor = LineEditor()
    shown = "".join(event.text for event in editor.feed(b"ab\x7f\r") if isinstance(event, Echo))
    assert shown == "ab\b \b\n"


def test_control_d_ends_the_input_only_on_an_empty_line() -> None:
    assert list(LineEditor().feed(b"\x04")) == [EndOfInput()]
    assert lines(b"a\x04b\n") == ["ab"]


def test_a_line_is_bounded() -> None:
    (line,) = lines(b"x" * (MAX_LINE_CHARACTERS + 10) + b"\n")
    assert len(line) == MAX_LINE_CHARACTERS


@given(st.binary(max_size=200), st.integers(min_value=1, max_value=7))
def test_pieces_make_the_same_lines(data: bytes, size: int) -> None:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert lines(data) == lines(*pieces)
