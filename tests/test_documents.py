"""Documents at the border: one line for whatever is wrong, and never half a file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from mltswitch.documents import (
    dump_yaml,
    load_document,
    parse_yaml,
    sha256,
    validate,
    write_atomically,
)
from mltswitch.errors import UserInputError


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
    ("content", "message"),
    [
        (b"name: x\nsize: -1\n", "size: Input should be greater than 0, not -1"),
        (b"size: 2\n", "name: Field required"),
        (b"name: x\ncolour: red\n", "colour: Extra inputs are not permitted"),
        (b"- 1\n", "is not a mapping of fields"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"name: [", "not valid YAML"),
        (b"", "is not a mapping of fields"),
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


def test_validation_counts_the_other_problems() -> None:
    with pytest.raises(UserInputError, match=r"\(and 1 more\)"):
        validate({"size": -1}, Sample, where="x")
