"""What is found out of the way to a peer."""

from dataclasses import replace

import pytest

from mltswitch.hostagent import datapaths
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.datapaths import DataPaths
from mltswitch.hostagent.network.features import FAIR_QUEUEING, Egress, egress
from mltswitch.hostagent.network.flow_limit import FLOW_PACKETS, FlowLimit
from mltswitch.hostagent.network.netlink import TC_H_ROOT, QueueingDiscipline
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.transport.hello import Secrets, decode_hello, encode_hello
from mltswitch.hostagent.transport.rate import RateSettings

PAYLOAD_BYTES = 1_400
FAST_BPS = 100e9
ADDRESSES = tuple(f"127.0.77.{number}" for number in range(1, 5))
FAIR = QueueingDiscipline(FAIR_QUEUEING, 1 << 16, TC_H_ROOT)


def fair(address: str) -> Egress:
    """As if the loopback interface had fq."""
    return replace(egress(address), disciplines=(FAIR,))


@pytest.mark.parametrize("count", [1, 4])
def test_where_the_kernel_paces_it_holds_so_many_packets_of_any_path(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datapaths, "egress", fair)
    settings = AgentSettings(
        name="one",
        addresses=ADDRESSES[:count],
        security=Plaintext(),
        rate=RateSettings.for_network(FAST_BPS, queue_bytes=0),
        control_dscp=40,
        data_port=0,
        payload_bytes=PAYLOAD_BYTES,
    )
    paths = DataPaths(settings)
    try:
        hello = decode_hello(encode_hello(paths.local_end(1000), Secrets(1, bytes(32))))
        to_peer = paths.to_peer(hello, lambda: FAST_BPS)
        assert isinstance(to_peer.output, FlowLimit)
        pacer = to_peer.pacer(0)
        assert pacer is not None
        pacer.spread(1 / count)
        assert pacer.may_leave_bytes(FAST_BPS, 10**9) == count * FLOW_PACKETS * PAYLOAD_BYTES
    finally:
        paths.close()
