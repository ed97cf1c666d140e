"""The transport `ltp`: repairs losses at once, closes receives when waiting no longer pays (LTP, III-IV)."""

from typing import Final

from mltswitch.hostagent.early_close import EarlyCloseSettings
from mltswitch.hostagent.transport.description import Transport
from mltswitch.hostagent.transport.mlt import datagrams

TRANSPORT: Final = Transport(
    name="ltp",
    settings=EarlyCloseSettings,
    open=datagrams("ltp", at_once=True),
    sends_datagrams=True,
    importance="edges",
    closes_early=True,
)
