"""Tensors in files: read as they are, written whole or not at all."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from mltswitch.app.arrays import read_array, write_array
from mltswitch.errors import UserInputError
from mltswitch.outputs import check_output


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        np.arange(6, dtype=">f4"),
        np.float16(3.5) * np.ones(()),
    ],
)
def test_any_order_becomes_ours(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> None:
    file = tmp_path / "a.npy"
    np.save(file, array)
    found = read_array(file)
    assert found.shape == array.shape
    assert (found == array).all()
    assert found.flags.c_contiguous
    assert found.dtype.isnative


def test_written_is_read(tmp_path: Path) -> None:
    file, link = tmp_path / "a.npy", tmp_path / "link.npy"
    link.symlink_to(file)
    with pytest.raises(UserInputError, match=r"link\.npy: is a link to .*a\.npy, which is not followed"):
        write_array(link, np.arange(5, dtype=np.int8))
    write_array(file, np.arange(5, dtype=np.int8))
    assert (read_array(file) == np.arange(5)).all()
    write_array(file, np.zeros(2, np.float32))
    assert read_array(link).tolist() == [0, 0]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.npy", "link.npy"]


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04nonsense", b"1,2,3\n"])
def test_what_is_no_array(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(content)
    with pytest.raises(UserInputError, match=r"a.npy: cannot be read: .*expected a .npy file of numbers"):
        read_array(file)


def test_objects_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UserInputError, match="cannot be read"):
        read_array(file)


def test_what_claims_more_than_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.zeros(1000, np.float32))
    os.truncate(file, 500)
    with pytest.raises(UserInputError, match="cannot be read"):
        read_array(file)


def test_places_that_take_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "a.npy", tmp_path, Path("/dev/null")):
        with pytest.raises(UserInputError, match=r"cannot be written|is no regular file"):
            check_output(path)
        with pytest.raises(UserInputError):
            write_array(path, np.zeros(1))
    with pytest.raises(UserInputError, match="is no regular file"):
        read_array(Path("/dev/null"))
    with pytest.raises(UserInputError, match="cannot be read"):
        read_array(tmp_path / "nothing.npy")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.npy"
    write_array(file, np.arange(3, dtype=np.float32))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserInputError, match="cannot be written: No space left on device"):
        write_array(file, np.zeros(3, np.float32))
    assert read_array(file).tolist() == [0, 1, 2]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npy"]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """A limit of the process stands for it; nothing stays of the file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(UserInputError, match=r"a\.npy: cannot be written: File too large$"):
            write_array(tmp_path / "a.npy", np.zeros(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
        np.arange(12, dtype=np.int8)[::2],
        np.float32(3.5) * np.ones(()),
    ],
)
def test_any_memory_is_written(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> None:
    write_array(tmp_path / "a.npy", array)
    found = np.load(tmp_path / "a.npy")
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert (found == array).all()


def test_a_pipe_without_a_writer_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserInputError, match="pipe: is no regular file"):
        read_array(tmp_path / "pipe")
