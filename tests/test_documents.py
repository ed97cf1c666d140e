"""Documents at the border: one line for whatever is wrong, and never half a file."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mltswitch.documents import (
    MAXIMUM_DEPTH,
    MAXIMUM_DOCUMENT_BYTES,
    MAXIMUM_NODES,
    dump_yaml,
    load_document,
    parse_yaml,
    read_text,
    sha256,
    validate,
)
from mltswitch.errors import MOST_LISTED, UserInputError
from mltswitch.outputs import write_atomically, write_together


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    size: int = Field(gt=0, default=1)


@given(st.text(max_size=200))
def test_any_text_is_data_or_one_clear_line(text: str) -> None:
    try:
        parse_yaml(text, where="file.yaml")
    except UserInputError as error:
        assert str(error).startswith("file.yaml")
        assert "\n" not in str(error)


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(UserInputError, match=r"file.yaml:2:1: not valid YAML: the key 'a' stands twice"):
        parse_yaml("a: 1\na: 2\n", where="file.yaml")


def test_objects_are_not_constructed() -> None:
    with pytest.raises(UserInputError, match="not valid YAML"):
        parse_yaml("!!python/object/apply:os.system ['true']", where="file.yaml")


@pytest.mark.parametrize(
    "text", ["a: !!int ''", "a: !!bool x", "a: !!timestamp x", "a: !vault x", "!!set {a}", "a: !!binary =="]
)
def test_tags_are_refused(text: str) -> None:
    with pytest.raises(UserInputError, match=r"file.yaml:1:\d+: not valid YAML: the tag '.*' is not read"):
        parse_yaml(text, where="file.yaml")


@pytest.mark.parametrize("text", ["[" * 200_000, "{a: " * 200_000, "- " * 200_000, "? " * 200_000])
def test_depth_does_not_end_the_process(text: str) -> None:
    with pytest.raises(UserInputError, match=f"more than {MAXIMUM_DEPTH} levels deep"):
        parse_yaml(text, where="file.yaml")


def test_depth_that_a_document_may_have() -> None:
    assert parse_yaml("[" * (MAXIMUM_DEPTH - 1) + "]" * (MAXIMUM_DEPTH - 1), where="file.yaml")


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels + 1)]
    return "\n".join(lines)


def test_aliases_that_multiply(tmp_path: Path) -> None:
    assert parse_yaml(bomb(2), where="file.yaml")["a2"][9][9] == ["x"] * 10
    path = tmp_path / "sample.yaml"
    path.write_text(bomb(30))
    with pytest.raises(UserInputError, match=f"more than {MAXIMUM_NODES} values"):
        load_document(path, Sample)


def test_a_loop_of_aliases(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text("name: &a [*a]\n")
    with pytest.raises(UserInputError, match="an alias stands before the end of what it names"):
        load_document(path, Sample)


def test_merge_keys_are_refused() -> None:
    with pytest.raises(UserInputError, match=r"file.yaml:2:5: .*the merge key << is not read"):
        parse_yaml("a: &a {x: 1}\nb: {<<: *a}\n", where="file.yaml")


@pytest.mark.parametrize("text", ["a: 0x" + "f" * 9000, "a: 1" + "0" * 400, "1" + "0" * 500 + ": a"])
def test_numbers_without_end(text: str) -> None:
    with pytest.raises(UserInputError, match="a number of more than 40 digits"):
        parse_yaml(text, where="file.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: x\nsize: -1\n", "size: must be more than 0, not -1"),
        (b"size: 2\n", "name: is missing"),
        (b"name: x\ncolour: red\n", "colour: is no field that is known here"),
        (b"- 1\n", "is not a mapping of fields"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"name: [", "not valid YAML"),
        (b"", "is empty"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "sample.yaml"
    path.write_bytes(content)
    with pytest.raises(UserInputError) as refusal:
        load_document(path, Sample)
    assert message in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be read: No such file"):
        load_document(tmp_path / "nothing.yaml", Sample)


def test_round_trip(tmp_path: Path) -> None:
    sample = Sample(name="yes", size=3)
    path = tmp_path / "sample.yaml"
    write_atomically(path, dump_yaml(sample))
    assert load_document(path, Sample) == sample
    assert sha256(load_document(path, Sample)) == sha256(sample)


def test_the_hash_sees_every_field() -> None:
    assert sha256(Sample(name="a")) != sha256(Sample(name="b"))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \udcff")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UserInputError, match="cannot be written"):
        write_atomically(tmp_path / "no" / "folder.yaml", "new")


@pytest.fixture
def umask() -> Iterator[None]:
    old = os.umask(0o027)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask")
def test_permissions(tmp_path: Path) -> None:
    new, old = tmp_path / "new.yaml", tmp_path / "old.yaml"
    old.touch()
    old.chmod(0o604)
    write_together({new: "a", old: "b"}.items())
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    assert stat.S_IMODE(old.stat().st_mode) == 0o604


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link.yaml"
    link.symlink_to("folder/file.yaml")
    for text in ("first", "second"):
        write_atomically(link, text)
        assert link.is_symlink()
        assert (tmp_path / "folder" / "file.yaml").read_text() == text


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    fifo, folder, loop = tmp_path / "fifo", tmp_path / "folder", tmp_path / "loop"
    os.mkfifo(fifo)
    folder.mkdir()
    loop.symlink_to("loop")
    for path in (fifo, folder):
        with pytest.raises(UserInputError, match="is no regular file"):
            write_atomically(path, "new")
        with pytest.raises(UserInputError, match="is no regular file"):
            read_text(path)
    for use in (lambda: write_atomically(loop, "new"), lambda: read_text(loop)):
        with pytest.raises(UserInputError, match="loop: "):
            use()
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert sorted(tmp_path.iterdir()) == [fifo, folder, loop]


def test_all_files_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("old")
    second.mkdir()
    with pytest.raises(UserInputError, match="second: is no regular file"):
        write_together({first: "new", second: "new"}.items())
    assert first.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_a_file_without_end(tmp_path: Path) -> None:
    path = tmp_path / "sparse.yaml"
    with path.open("wb") as stream:
        stream.truncate(MAXIMUM_DOCUMENT_BYTES * 1000)
    with pytest.raises(UserInputError, match="larger than"):
        read_text(path)


class Bytes(BaseModel):
    kind: Literal["bytes"]
    size: int = Field(gt=0)


class Alpha(BaseModel):
    kind: Literal["alpha"]


class Place(BaseModel):
    ports: Literal["all"] | tuple[Annotated[str, Field(pattern="^[a-z]+$")], ...] = "all"
    limit: Bytes | Alpha = Field(discriminator="kind", default=Alpha(kind="alpha"))
    names: dict[Literal["a", "b"], int] = {}
    inner: Alpha | None = None

    @model_validator(mode="after")
    def _never(self) -> "Place":
        raise ValueError("wrong as a whole")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({}, "f: wrong as a whole"),
        ({"ports": 3}, "f: ports: must be 'all', or: must be a list, not 3"),
        ({"ports": ["a", "B"]}, "f: ports[1]: must match the pattern '^[a-z]+$', not 'B'"),
        (
            {"limit": {"kind": "bytes", "size": -1}},
            "f: limit.size: must be more than 0, not -1",
        ),
        ({"limit": {"kind": "bytes"}}, "f: limit.size: is missing"),
        ({"names": {"c": 1}}, "f: names.c: must be 'a' or 'b', not 'c'"),
        ({"inner": 7}, "f: inner: must be a mapping of fields, not 7"),
    ],
)
def test_a_field_is_named_as_the_document_has_it(data: dict[str, object], line: str) -> None:
    with pytest.raises(UserInputError) as refusal:
        validate(data, Place, where="f")
    assert str(refusal.value) == line


class Doubled(BaseModel):
    numbers: Annotated[
        tuple[Annotated[int, Field(lt=5)], ...],
        BeforeValidator(lambda value: [*value, *value, 9] if isinstance(value, list) else value),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("numbers: [1, 2]\n", "f:1: numbers[4]: must be less than 5, not 9"),
        ("numbers: {a: 1}\n", "f:1: numbers: must be a list"),
        ("numbers:\n", "f:1: numbers: must be a list"),
    ],
)
def test_a_list_longer_than_it_stands_there_is_told_by_its_field(text: str, line: str) -> None:
    with pytest.raises(UserInputError) as refusal:
        validate(parse_yaml(text, where="f"), Doubled, where="f", text=text)
    assert str(refusal.value) == line


def test_all_problems_are_listed_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text("# a comment\nsize: -1\nnmae: x\n")
    with pytest.raises(UserInputError, match=r"\(and 2 more\)") as refusal:
        load_document(path, Sample)
    assert refusal.value.lines() == [
        f"{path}: 3 errors",
        f"  {path}:3: nmae: is no field that is known here, did you mean name?",
        f"  {path}: name: is missing",
        f"  {path}:2: size: must be more than 0, not -1",
    ]


def test_a_long_list_of_problems_is_cut() -> None:
    with pytest.raises(UserInputError) as refusal:
        validate({f"field{number}": 1 for number in range(500)}, Sample, where="x")
    assert len(refusal.value.lines()) == MOST_LISTED + 2
    assert refusal.value.lines()[-1] == "  and 481 more"


def test_no_text_is_kept_when_the_maker_fails(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("old")

    def texts() -> Iterator[tuple[Path, str]]:
        yield first, "new"
        raise UserInputError("no more")
        yield second, "new"

    with pytest.raises(UserInputError, match="no more"):
        write_together(texts())
    assert [path.name for path in tmp_path.iterdir()] == ["first"]
    assert first.read_text() == "old"


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[2J", "le\u200baf", "\u202eleaf", "\0"])
def test_a_text_that_steers_or_hides_is_refused_where_it_stands(text: str) -> None:
    for data, place in (
        ({"name": text}, "name"),
        ({"hosts": [{"name": "a"}, {"name": text}]}, "hosts[1].name"),
        ({"alias": {text: "10.0.0.0/8"}}, "alias."),
    ):
        with pytest.raises(UserInputError, match="nobody sees") as caught:
            validate(data, Sample, where="f.yaml")
        assert str(caught.value).startswith(f"f.yaml: {place}")
        assert str(caught.value).isprintable()
