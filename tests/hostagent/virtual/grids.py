"""Datagrams as the kernel hands them over: alone, or coalesced; in memory that is used again at once."""

import struct
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from mltswitch.hostagent.transport.datagrams import DatagramGrid

TOKEN = slice(4, 12)
"""Of the agent header."""
NOISE = 0xEE
"""What memory holds between and after datagrams."""

Arrived = tuple[bytes, int, int]
"""Payload, DSCP/ECN byte, path."""


def token_of(payload: bytes) -> int:
    """The flow token; -1 where the datagram is too short to have one."""
    return struct.unpack(">Q", payload[TOKEN])[0] if len(payload) >= TOKEN.stop else -1


def grids(arrived: Sequence[Arrived], random: Random, maximum_run: int) -> Iterator[tuple[int, DatagramGrid]]:
    """(token of the first datagram of each message, grid), in the order of arrival.

    Datagrams that follow each other with one length, DSCP/ECN byte and path may become one message, as
    UDP_GRO does it: the tokens of all but the first are nobody's concern before the connection looks.
    Messages with the same number of datagrams that follow each other share a grid.
    """
    messages = list(_messages(arrived, random, maximum_run))
    first = 0
    for last in range(1, len(messages) + 1):
        if (
            last == len(messages)
            or _shape(messages[last]) != _shape(messages[first])
            or random.random() < 0.05
        ):
            yield _shape(messages[first])[2], _grid(messages[first:last], random)
            first = last


def _messages(arrived: Sequence[Arrived], random: Random, maximum_run: int) -> Iterator[list[Arrived]]:
    run: list[Arrived] = []
    longest = 1
    for datagram in arrived:
        if run and len(run) < longest and _is_like(datagram, run[0]):
            run.append(datagram)
            continue
        if run:
            yield run
        run, longest = [datagram], random.randint(1, maximum_run)
    if run:
        yield run


def _is_like(one: Arrived, other: Arrived) -> bool:
    return len(one[0]) == len(other[0]) and one[1:] == other[1:]


def _shape(message: list[Arrived]) -> tuple[int, int, int]:
    return len(message), len(message[0][0]), token_of(message[0][0])


def _grid(messages: list[list[Arrived]], random: Random) -> DatagramGrid:
    count, size, _ = _shape(messages[0])
    offset, stride = random.randrange(64), count * size + random.randrange(64)
    memory = bytearray([NOISE]) * (offset + stride * len(messages))
    for place, message in enumerate(messages):
        start = offset + place * stride
        memory[start : start + count * size] = b"".join(payload for payload, _, _ in message)
    return DatagramGrid(
        np.frombuffer(memory, np.uint8),
        offset,
        len(messages),
        stride,
        count,
        size,
        np.array([message[0][1] for message in messages], np.uint8),
    )
