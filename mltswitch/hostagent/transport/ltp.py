"""The transport `ltp`: repairs at once, closes what has waited as long as it pays (LTP, sections III and IV).

Here is its description; the work is the compiled data plane's, which is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Final

from mltswitch.hostagent.early_close import EarlyCloseSettings
from mltswitch.hostagent.transport.description import Transport, TransportHost

if TYPE_CHECKING:
    from mltswitch.hostagent.transport.datagram_engine import DatagramEngine


def _open(host: TransportHost) -> "DatagramEngine":
    """Raises MachineError where the data plane was not built, or an address is not this host's."""
    from mltswitch.hostagent.transport.datagram_engine import DatagramEngine

    return DatagramEngine(host, TRANSPORT.name, at_once=True)


TRANSPORT: Final = Transport(
    name="ltp",
    settings=EarlyCloseSettings,
    open=_open,
    sends_datagrams=True,
    importance="edges",
    closes_early=True,
)
