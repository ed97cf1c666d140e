"""Two connections that hear each other, for tests of what they say."""

from typing import Any

import numpy as np

from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.tagging import AllImportant
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.compiled import Registry
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.hello import KEY_BYTES, LocalEnd, PathAddress, Secrets
from mltswitch.hostagent.transport.interfaces import Incoming, Outgoing, TransferKey
from mltswitch.hostagent.transport.rate import RateSettings, Timely
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import ElementType

FAR_NS = 10**12


def connection(
    number: int,
    settings: ConnectionSettings | None = None,
    payload_bytes: int = 1472,
    *,
    registry: Registry | None = None,
    authenticate: bool = False,
    rate: Timely | None = None,
    paths: int = 1,
    window_bytes: int = 1 << 20,
) -> Connection:
    addresses = tuple(PathAddress(path, f"10.0.{path}.{number}", 1000) for path in range(paths))
    local = LocalEnd(f"host{number}", addresses, window_bytes, payload_bytes, authenticate, 40)
    return Connection(
        settings or ConnectionSettings(),
        local,
        Secrets(number, bytes([number]) * KEY_BYTES),
        lambda hello: PathSprayer(len(hello.data_addresses)),
        rate or Timely(RateSettings.for_network(10e9, queue_bytes=0)),
        0,
        registry,
    )


def talk(first: Connection, second: Connection, now_ns: int = 1) -> None:
    """Carry control bytes until nobody has any."""
    while True:
        one, other = first.control_to_send(), second.control_to_send()
        if not one and not other:
            return
        second.control_received(one, now_ns)
        first.control_received(other, now_ns)


def failing() -> int:
    """As a user's code may."""
    raise ZeroDivisionError("by zero")


def tensor(count: int = 100) -> TensorView:
    return TensorView(np.zeros(4 * count, np.uint8), ElementType.FLOAT32)


def outgoing(number: int, round_number: int = 1, **changes: Any) -> Outgoing:
    settings: dict[str, Any] = {
        "key": TransferKey(number, round_number),
        "tensor": tensor(),
        "layer": 0,
        "dscp": lambda: 34,
        "policy": AllImportant(),
        "deadline_ns": FAR_NS,
        "burst_packets": 1,
    } | changes
    return Outgoing(**settings)


def incoming(number: int, round_number: int = 1, deadline_ns: int = FAR_NS) -> Incoming:
    return Incoming(TransferKey(number, round_number), tensor(), 0.0, None, False, deadline_ns)


def fail_one_of_two(sender: Connection, receiver: Connection, **changes: Any) -> None:
    """Tensor 7 has this policy or code point, and fails; tensor 8 leaves all the same."""
    for number in (7, 8):
        receiver.receive(incoming(number), 1)
    sender.send(outgoing(7, **changes), 1)
    sender.send(outgoing(8), 1)
    talk(sender, receiver)
    bursts = sender.bursts(1, 100)
    assert bursts is not None
    assert bursts.headers["tensor"].tolist() == [8] * bursts.packet_count
    talk(sender, receiver)
