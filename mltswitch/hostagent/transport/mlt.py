"""The transport `mlt`: bounded loss over UDP, sprayed over all paths (MLT, sections 4 and 5).

This module only describes it; the work is done by the compiled data plane, which is loaded on first use.
"""

from collections.abc import Callable
from typing import Any, Final

from mltswitch.hostagent.transport.datagram_settings import DatagramSettings
from mltswitch.hostagent.transport.description import Transport, TransportEngine


def datagrams(name: str, *, at_once: bool) -> Callable[[Any], TransportEngine]:
    """Returns a function that opens a transport over datagrams, with the arguments of DatagramEngine.

    The function raises MachineError where the data plane was not built, or an address is not this host's.
    """

    def opened(host: Any) -> TransportEngine:
        from mltswitch.hostagent.transport.datagram_engine import DatagramEngine

        return DatagramEngine(host, name, at_once=at_once)

    return opened


TRANSPORT: Final = Transport(
    name="mlt", settings=DatagramSettings, open=datagrams("mlt", at_once=False), sends_datagrams=True
)
