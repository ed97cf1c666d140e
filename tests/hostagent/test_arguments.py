"""What a caller hands over is refused before anything is posted."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.arguments import (
    LONGEST_WAIT_SECONDS,
    agent_name,
    code_point,
    endpoint_given,
    peer_name,
    peer_names,
    policy_given,
    seconds,
    share,
    text_given,
    transfer_key,
    wait_limit,
)
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import ProtocolViolationError
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tagging import AllImportant
from mltswitch.hostagent.transport.hello import (
    KEY_BYTES,
    LocalEnd,
    PathAddress,
    Secrets,
    decode_hello,
    encode_hello,
)
from mltswitch.hostagent.transport.rate import RateSettings
from tests.hostagent.background import in_background

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
        *(
            (name, value)
            for name in ("tensor", "round_number")
            for value in ("w", None, 1.5, -1, 1 << 32, 10**4000, True)
        ),
        *(("layer", value) for value in ("conv1", -1, 70_000, None, True, np.True_)),
        *(("burst_packets", value) for value in ("4", 0, -1, True)),
        *(("dscp", value) for value in (34.0, "AF41", -1, 64, 48, True)),
        *(
            ("deadline_seconds", value)
            for value in (None, "1", 0, -1, float("nan"), float("inf"), 10**400, -(10**400), np.True_)
        ),
        *(("element_type", value) for value in ("float", "FLOAT32", 1, np.float32, "\ud800")),
        *(("policy", value) for value in (5, None, "no such")),
    ],
)
def test_what_cannot_be_sent(agent: Agent, name: str, value: object) -> None:
    with pytest.raises(UserInputError) as refused:
        agent.post_send("b", GRADIENTS, **{**SEND, name: value})
    assert refused.value.where


@pytest.mark.parametrize("value", ["0.1", -0.1, 1, float("nan"), [0.1], True, np.False_, 10**400])
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


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (2, 2.0),
        (np.float32(0.5), 0.5),
        (0, 0.0),
        (-1, 0.0),
        (float("-inf"), 0.0),
        (-(10**400), 0.0),
        (1e10, LONGEST_WAIT_SECONDS),
        (float("inf"), LONGEST_WAIT_SECONDS),
        (10**400, LONGEST_WAIT_SECONDS),
    ],
)
def test_times_to_wait(value: object, limit: float) -> None:
    assert wait_limit("timeout_seconds", value) == limit


@pytest.mark.parametrize("value", [None, "1", float("nan"), np.float32("nan"), True, [], Unspeakable()])
def test_what_is_no_time_to_wait(value: object) -> None:
    with pytest.raises(UserInputError, match=r"^timeout_seconds: .* is no time"):
        wait_limit("timeout_seconds", value)


def test_conditions_can_wait_as_long_as_can_be() -> None:
    condition = threading.Condition()
    with in_background(lambda: _waited(condition)) as waited:
        for _ in range(20):  # each wake-up without a reason makes it calculate anew what is left
            time.sleep(0.001)
            with condition:
                condition.notify_all()
        with condition:
            _ended.set()
            condition.notify_all()
        assert waited()


_ended = threading.Event()


def _waited(condition: threading.Condition) -> bool:
    with condition:
        return condition.wait_for(_ended.is_set, wait_limit("x", 10**400))


class Name(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


def test_names_of_peers() -> None:
    assert type(peer_name(Name("host-a"))) is str
    assert peer_name(Name("host-a")) == "host-a"
    assert peer_names(name for name in ("a", "b")) == ["a", "b"]
    assert peer_names([]) == []


@pytest.mark.parametrize(
    "value", ["", "\ud800", "host\udfff", None, 5, b"host-a", ["host-a"], "a" * 256, Unspeakable()]
)
def test_what_is_no_name(value: object) -> None:
    with pytest.raises(UserInputError, match=r"^peer: .* is no name"):
        peer_name(value)
    with pytest.raises(UserInputError, match=r"^peer: .* is no name"):
        peer_names(["host-a", value])


def test_names_are_those_that_a_hello_can_say() -> None:
    for name in ("a", "é" * 255, "a" * 256, "", "\ud800"):
        local = LocalEnd(name, (PathAddress(0, "10.0.0.1", 1),), 1, 1472, False, 40)
        body = encode_hello(local, Secrets(1, bytes(KEY_BYTES)))
        try:
            heard = decode_hello(body).name
        except ProtocolViolationError:
            with pytest.raises(UserInputError):
                agent_name("name", name)
        else:
            assert agent_name("name", name) == heard == name


@pytest.mark.parametrize("value", ["host-a", None, 5])
def test_what_is_no_list_of_names(value: object) -> None:
    with pytest.raises(UserInputError, match=r"^names: .* is no list of names"):
        peer_names(value)


def test_text_of_users() -> None:
    assert text_given("reason", "over — \U0001f600") == "over — \U0001f600"
    assert text_given("reason", "half \ud83d") == "half ?"
    for value in (None, 5, b"over", Unspeakable()):
        with pytest.raises(UserInputError, match=r"^reason: .* is no text"):
            text_given("reason", value)


def test_places() -> None:
    place = Endpoint("127.0.0.1", 18515)
    assert endpoint_given("remote", place) is place
    bad: list[object] = ["127.0.0.1:18515", None, ("127.0.0.1", 1), Endpoint(5, 1)]  # type: ignore[arg-type]
    bad += [Endpoint("127.0.0.1", port) for port in (-1, 1 << 16, "1")]  # type: ignore[arg-type]
    for value in bad:
        with pytest.raises(UserInputError, match="remote: "):
            endpoint_given("remote", value)


def test_messages_are_short() -> None:
    for value in ("x" * 10_000, 10**4000, 10**5000):
        with pytest.raises(UserInputError) as refused:
            transfer_key(value, 1)
        assert len(str(refused.value)) < 200
