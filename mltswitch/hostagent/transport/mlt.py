"""The transport `mlt`: bounded loss over UDP, sprayed over all paths (MLT, sections 4 and 5).

Here is its description; the work is the compiled data plane's, which is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Final

from mltswitch.hostagent.transport.datagram_settings import DatagramSettings
from mltswitch.hostagent.transport.description import Transport, TransportHost

if TYPE_CHECKING:
    from mltswitch.hostagent.transport.datagram_engine import DatagramEngine


def _open(host: TransportHost) -> "DatagramEngine":
    """Raises MachineError where the data plane was not built, or an address is not this host's."""
    from mltswitch.hostagent.transport.datagram_engine import DatagramEngine

    return DatagramEngine(host, TRANSPORT.name, at_once=False)


TRANSPORT: Final = Transport(
    name="mlt",
    settings=DatagramSettings,
    open=_open,
    sends_datagrams=True,
)
