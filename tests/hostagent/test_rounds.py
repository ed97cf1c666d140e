"""Rounds that one end leaves out: real agents on loopback, no root."""

from collections.abc import Iterator

import numpy as np
import pytest

from mltswitch.hostagent.completions import Transfer
from mltswitch.hostagent.errors import CancelledError
from mltswitch.hostagent.transport.settings import Transport
from tests.hostagent.opening import Make, opening

DSCP = 34
PATIENCE_SECONDS = 30.0
FAR_SECONDS = 10 * PATIENCE_SECONDS


@pytest.fixture
def opened() -> Iterator[Make]:
    with opening() as one:
        yield one


@pytest.mark.parametrize("transport", list(Transport))
@pytest.mark.parametrize("is_posted_before", [True, False])
def test_a_sender_of_a_round_that_the_receiver_leaves_out_is_told_at_once(
    opened: Make, transport: Transport, is_posted_before: bool
) -> None:
    one, other = opened("one-a", transport=transport), opened("two-b", transport=transport)
    assert other.listening_at is not None
    one.connect("two-b", other.listening_at, PATIENCE_SECONDS)
    other.wait_for_peers(["one-a"], PATIENCE_SECONDS)
    data, buffer = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)

    def sending(round_number: int) -> Transfer:
        return one.post_send(
            "two-b",
            data,
            tensor=7,
            round_number=round_number,
            dscp=DSCP,
            deadline_seconds=FAR_SECONDS,
        )

    early = sending(1) if is_posted_before else None
    there = other.post_recv("one-a", buffer, tensor=7, round_number=2)
    skipped = early or sending(1)
    with pytest.raises(CancelledError, match="tensor 7, round 1: the receiver has skipped it"):
        skipped.wait(PATIENCE_SECONDS)
    sending(2)
    there.wait(PATIENCE_SECONDS)
    assert (buffer == data).all()
