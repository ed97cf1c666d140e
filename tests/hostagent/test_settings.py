"""An agent's settings refuse what cannot work."""

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import Transport


def settings(*addresses: str, transport: Transport = Transport.MLT) -> AgentSettings:
    return AgentSettings(
        name="host-a",
        addresses=addresses,
        security=Plaintext(),
        rate=RateSettings.for_network(1e9, queue_bytes=0),
        control_dscp=40,
        transport=transport,
    )


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])  # noqa: S104  (refused)
def test_data_goes_over_given_addresses_alone(address: str, transport: Transport) -> None:
    with pytest.raises(ValueError, match="means all networks of this machine"):
        settings("127.0.0.1", address, transport=transport)


def test_names_are_no_addresses() -> None:
    with pytest.raises(UserInputError, match="localhost: is not an IP address"):
        settings("localhost")
