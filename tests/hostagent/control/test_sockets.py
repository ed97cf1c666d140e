"""Endpoints say what is wrong with them, whatever they were made of."""

import socket
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.sockets import Endpoint


@pytest.mark.parametrize("port", ["0", None, 1.0, True, -1, 65_536])
def test_ports_that_cannot_be(port: Any) -> None:
    with pytest.raises(UserInputError, match=r"^127.0.0.1:.*: port .* \(expected a whole number, 0-65535\)$"):
        Endpoint("127.0.0.1", port).resolved()


@pytest.mark.parametrize("address", [None, 2130706433, b"\x7f\0\0\1", ["127.0.0.1"], "localhost", ""])
def test_addresses_that_cannot_be(address: Any) -> None:
    endpoint = Endpoint(address, 0)
    with pytest.raises(UserInputError, match="is not an IP address"):
        endpoint.resolved()
    assert str(endpoint).endswith(":0")


def test_ports_of_numpy() -> None:
    port: Any = np.uint16(18_515)
    assert Endpoint("127.0.0.1", port).resolved() == (socket.AF_INET, ("127.0.0.1", 18_515))
