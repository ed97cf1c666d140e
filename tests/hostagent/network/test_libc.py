"""The structures are the machine's, and foreign machines are refused."""

import ctypes
import socket
import sys

import numpy as np
import pytest

from mltswitch.errors import MachineError
from mltswitch.hostagent.network import libc


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Message(ctypes.Structure):
    _fields_ = (("header", Header), ("length", ctypes.c_uint))


class Control(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_size_t),
        ("level", ctypes.c_int),
        ("type", ctypes.c_int),
    )


def test_vectors_are_those_of_the_machine() -> None:
    assert_same(libc.VECTOR, Vector)


def test_messages_are_those_of_the_machine() -> None:
    assert libc.MESSAGE.itemsize == ctypes.sizeof(Message)
    assert libc.MESSAGE.fields is not None
    assert libc.MESSAGE.fields["length"][1] == Message.length.offset
    for name, _ in Header._fields_:
        dtype, offset = libc.MESSAGE.fields[name][:2]
        field = getattr(Header, name)
        assert (offset, dtype.itemsize) == (field.offset, field.size), name


def test_control_messages_are_those_of_the_machine() -> None:
    assert ctypes.sizeof(Control) == libc.CONTROL_HEADER_BYTES == socket.CMSG_LEN(0)
    assert libc.CONTROL.fields is not None
    for name, _ in Control._fields_:
        dtype, offset = libc.CONTROL.fields[name][:2]
        field = getattr(Control, name)
        assert (offset, dtype.itemsize) == (field.offset, field.size), name
    assert {socket.CMSG_SPACE(size) for size in range(1, 9)} == {libc.CONTROL.itemsize}


def assert_same(dtype: "np.dtype[np.void]", structure: type[ctypes.Structure]) -> None:
    assert dtype.itemsize == ctypes.sizeof(structure)
    assert dtype.fields is not None
    for name, _ in structure._fields_:  # type: ignore[misc]  # bit fields have three parts, these have none
        field = getattr(structure, name)
        assert (dtype.fields[name][1], dtype.fields[name][0].itemsize) == (field.offset, field.size), name


def test_addresses_are_those_of_the_memory() -> None:
    memory = np.arange(8, dtype=np.uint8)
    memory.flags.writeable = False
    assert ctypes.string_at(libc.address_of(memory[3:]), 5) == bytes([3, 4, 5, 6, 7])


def test_this_machine_will_do() -> None:
    libc.require_supported_machine()


@pytest.mark.parametrize(
    ("place", "name", "value", "message"),
    [
        (sys, "platform", "darwin", "64-bit Linux"),
        (sys, "byteorder", "big", "little-endian machine"),
        (libc, "MISSING_CALLS", ("recvmmsg",), "has no recvmmsg"),
    ],
)
def test_other_machines_are_refused(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, value: object, message: str
) -> None:
    monkeypatch.setattr(place, name, value)
    with pytest.raises(MachineError, match=message):
        libc.require_supported_machine()


def test_errors_come_as_numbers() -> None:
    assert libc.send_messages(-1, 0, 1) == -9  # EBADF
    assert libc.receive_messages(-1, 0, 1) == -9
