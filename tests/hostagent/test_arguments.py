"""What a caller hands over is refused before anything is posted."""

from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.arguments import code_point, policy_given, seconds, share, transfer_key
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tagging import AllImportant
from mltswitch.hostagent.transport.rate import RateSettings

GRADIENTS = np.zeros(10, np.float32)
SEND: dict[str, Any] = {"tensor": 1, "round_number": 1, "dscp": 34}
RECEIVE: dict[str, Any] = {"tensor": 1, "round_number": 1}


@pytest.fixture(scope="module")
def agent() -> Any:
    settings = AgentSettings(
        name="a",
        addresses=("127.0.0.1",),
        security=Plaintext(),
        control_dscp=40,
        data_port=0,
        rate=RateSettings.for_network(1e9, queue_bytes=0),
    )
    with Agent(settings) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("tensor", "round_number") for value in ("w", None, 1.5, -1, 1 << 32)),
        *(("layer", value) for value in ("conv1", -1, 70_000, None)),
        *(("burst_packets", value) for value in ("4", 0, -1)),
        *(("dscp", value) for value in (34.0, "AF41", -1, 64, 48)),
        *(("deadline_seconds", value) for value in (None, "1", 0, -1, float("nan"))),
        *(("policy", value) for value in (5, None, "no such")),
    ],
)
def test_what_cannot_be_sent(agent: Agent, name: str, value: object) -> None:
    with pytest.raises(UserInputError) as refused:
        agent.post_send("b", GRADIENTS, **{**SEND, name: value})
    assert refused.value.where


@pytest.mark.parametrize("value", ["0.1", -0.1, 1, float("nan"), [0.1], True])
@pytest.mark.parametrize("name", ["loss_bound", "important_loss_bound"])
def test_what_cannot_be_received(agent: Agent, name: str, value: Any) -> None:
    bound: dict[str, Any] = {name: value}
    with pytest.raises(UserInputError, match="bound of loss"):
        agent.post_recv("b", GRADIENTS.copy(), **RECEIVE, **bound)


def test_a_loss_bound_is_given(agent: Agent) -> None:
    with pytest.raises(UserInputError, match="None is no bound"):
        agent.post_recv("b", GRADIENTS.copy(), **RECEIVE, loss_bound=None)  # type: ignore[arg-type]  # on purpose


def test_numbers_of_numpy_are_numbers() -> None:
    key = transfer_key(np.int64(3), np.uint8(4))
    assert (key.tensor, key.round_number) == (3, 4)
    assert type(key.tensor) is type(code_point(np.int64(34))) is int
    assert share("x", np.float32(0.5)) == 0.5
    assert seconds("x", np.int8(3)) == 3.0


def test_policies() -> None:
    policy = AllImportant()
    assert policy_given(policy) is policy
    assert policy_given("none") is not None
