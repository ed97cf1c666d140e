"""An agent's settings refuse what cannot work."""

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import Transport


def settings(
    *addresses: str, transport: Transport = Transport.MLT, payload_bytes: int = 1472
) -> AgentSettings:
    return AgentSettings(
        name="host-a",
        addresses=addresses,
        security=Plaintext(),
        rate=RateSettings.for_network(1e9, queue_bytes=0),
        control_dscp=40,
        transport=transport,
        payload_bytes=payload_bytes,
    )


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])  # noqa: S104  (refused)
def test_data_goes_over_given_addresses_alone(address: str, transport: Transport) -> None:
    with pytest.raises(ValueError, match="means all networks of this machine"):
        settings("127.0.0.1", address, transport=transport)


def test_names_are_no_addresses() -> None:
    with pytest.raises(UserInputError, match="localhost: is not an IP address"):
        settings("localhost")


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("size_bytes", [0, 63, 65_508, 1500.0])
def test_packets_that_no_peer_accepts(size_bytes: int, transport: Transport) -> None:
    with pytest.raises(UserInputError, match=r"^payload_bytes: .*expected a whole number, 64 to 65507"):
        settings("127.0.0.1", transport=transport, payload_bytes=size_bytes)


@pytest.mark.parametrize("size_bytes", [64, 65_507])
def test_the_least_and_the_longest_packets_are_accepted(size_bytes: int) -> None:
    assert settings("127.0.0.1", payload_bytes=size_bytes).payload_bytes == size_bytes
