"""The host agent's compiled data plane as hosts behind simulated switches, beside modelled ones.

Each host that a flow of law `compiled` begins or ends at has a data plane in virtual time (`hostagent`). The
engine carries its datagrams as packets of their size, class, importance and path, and stops where one
arrives, where such a flow starts, and where a timer of a data plane is due. Flows between two hosts share a
connection, as those of two agents do. What tensors contain does not matter here: all are zeros of one memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.dataplane.binding import Fields, lib, path_fields
from mltswitch.hostagent.dataplane.virtual import VirtualPlane
from mltswitch.hostagent.transport.datagram_settings import DatagramSettings
from mltswitch.network import engine
from mltswitch.network.fabric import Network
from mltswitch.network.records import ACK, DATA, NEVER, NONE, PROBE, SPARE_PACKETS
from mltswitch.network.transports import external
from mltswitch.network.transports.parameters import AGENT_HEADER_BYTES, MltAgent
from mltswitch.network.units import PICOSECONDS
from mltswitch.network.workloads import Flow
from mltswitch.network.world import EVENTS_AT_ONCE, World
from mltswitch.wire.headers import AgentFlag, AgentKind, ElementType

MOST_HOSTS: Final = 64
"""That may run the data plane: each of its packets takes as long as some hundred of a model's."""
PICOSECONDS_NS: Final = 1000
_BEGIN_NS: Final = 10**9
"""The data planes' clock at the simulation's beginning; for them, 0 means never."""
_ADDRESS: Final = "10.0.0.1"
_ECT, _CE, _ECN = 2, 3, 3
_IP_UDP_BYTES: Final = 28


def check_hosts(flows: Sequence[Flow], where: str) -> None:
    """Raise UserInputError where more hosts would run the data plane than may."""
    hosts = {host for flow in flows for host in (flow.source, flow.destination)}
    if len(hosts) > MOST_HOSTS:
        raise UserInputError(
            f"{len(hosts)} hosts would run the compiled data plane",
            where=f"{where}.law",
            expected=f"at most {MOST_HOSTS} of them",
            hint="take a smaller workload, or a law that is modelled",
        )


@dataclass(slots=True)
class _Connection:
    """Between the hosts of a flow, which stands for all packets that are no flow's data."""

    flow: int
    tokens: dict[int, int]
    """Host → its data plane's token of the connection."""


class CosimulatedWorld(World):
    """A world in which flows of one transport number are played by the agent's data plane."""

    def __init__(
        self,
        network: Network,
        flows: Sequence[Flow],
        settings: dict[str, Any],
        *,
        seed: int,
        transport: MltAgent,
        **more: Any,
    ) -> None:
        """Lay out the tables; hosts get their data planes as flows begin.

        Args:
            network: As every world takes it, and so are `flows` and `settings`.
            flows: What is sent.
            settings: Fields of SETTINGS.
            seed: Of all choices.
            transport: Parameters of the data planes.
            more: Options of every world. Without `spraying`, a connection has the path that its hash names.
        """
        super().__init__(network, flows, settings, seed=seed, **more)
        self._transport, self._seed = transport, seed
        self._random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x636F,)))
        self._memory = np.zeros(max((flow.size_bytes for flow in flows), default=1), np.uint8)
        self._planes: dict[int, VirtualPlane] = {}
        self._due_ns: dict[int, int] = {}
        self._connections: dict[frozenset[int], _Connection] = {}
        self._by_token: dict[tuple[int, int], _Connection] = {}
        self._transfers: dict[tuple[int, int], int] = {}
        """(host, transfer) → flow; only open ones."""
        self._contents: dict[int, bytes] = {}
        """Of packets on their way, by index; what was lost stays until its place is used again."""

    def advance(self, until_picoseconds: int = NEVER, events: int = EVENTS_AT_ONCE) -> bool:
        """Go on for so many events of the engine; whether anything is left to happen."""
        last = self.count("events") + events
        while self.count("events") < last:
            due = self._next_due()
            until = min(until_picoseconds, due)
            going = super().advance(until, last - self.count("events"))
            if self.count("begun") != NONE or self.count("arrived") != NONE:
                self._serve()
            elif going and super().next_picoseconds <= until:
                break
            elif due > until_picoseconds or due == NEVER:
                return going or due != NEVER
            else:
                self._pass_pauses(due)
                self.state["now"] = due
                for host in [host for host, at_ns in self._due_ns.items() if at_ns <= self._now_ns]:
                    self._step(host)
                self._serve()
        return True

    @property
    def next_picoseconds(self) -> int:
        """When something happens next; NEVER: nothing will."""
        return min(super().next_picoseconds, self._next_due())

    @property
    def _now_ns(self) -> int:
        return self.now_picoseconds // PICOSECONDS_NS + _BEGIN_NS

    def _next_due(self) -> int:
        """When a data plane's timer is due; once all flows are over, none is."""
        if not self._due_ns or (not self._transfers and self.count("finished") == len(self.flows)):
            return NEVER
        return max((min(self._due_ns.values()) - _BEGIN_NS) * PICOSECONDS_NS, self.now_picoseconds)

    def _serve(self) -> None:
        while True:
            if (number := self.count("begun")) != NONE:
                self.state["begun"] = self.flows["next"][number]
                self._begin(number)
                continue
            if self.count("arrived") == NONE:
                return
            index = external.take(self.state[0])
            packet = self.tables["packets"][index]
            flow = self.flows[packet["flow"]]
            host = int(flow["source"] if packet["kind"] == ACK else flow["destination"])
            ecn = _CE if packet["marked"] else _ECT * int(packet["capable"])
            self._planes[host].feed(self._contents[index], self._now_ns, tos=int(packet["queue"]) << 2 | ecn)
            self._step(host)

    def _step(self, host: int) -> None:
        """Let a host do what is due now, and send what it hands out."""
        plane, now_ns = self._planes[host], self._now_ns
        while True:
            plane.step(now_ns)
            for output, data in plane.outputs():
                connection = self._by_token[host, output.flow]
                for first in range(0, len(data), output.segment_bytes):
                    datagram = data[first : first + output.segment_bytes]
                    self._send(host, connection, output.path, output.tos, datagram)
            due_ns = plane.next_timer()
            if due_ns is None or due_ns > now_ns:
                break
        self._due_ns[host] = NEVER if due_ns is None else due_ns
        while (event := plane.next_event()) is not None:
            if event.kind == lib.MLT_EVENT_DONE:
                self._end(host, event.transfer)

    def _send(self, host: int, connection: _Connection, path: int, tos: int, datagram: bytes) -> None:
        header = memoryview(datagram)
        is_data = header[1] == AgentKind.DATA
        number = int.from_bytes(header[12:16]) if is_data else connection.flow
        is_forth = int(self.flows["source"][number]) == host
        kind = (DATA if is_data else PROBE) if is_forth else ACK
        while self.count("alive") + SPARE_PACKETS > self.count("packet_places"):
            self._grow()
        more = self._transport.header_bytes - AGENT_HEADER_BYTES + _IP_UDP_BYTES
        size, ecn = len(datagram) + more, tos & _ECN
        is_again = is_data and header[2] & AgentFlag.RETRANSMISSION != 0
        index = external.send(self.state[0], number, kind, size, tos >> 2, int(ecn != 0), path, int(is_again))
        self._contents[index] = datagram

    def _begin(self, number: int) -> None:
        """Post a flow's receive and its send."""
        flow, law = self.flows[number], self._transport
        source, destination = int(flow["source"]), int(flow["destination"])
        connection = self._connection(number)
        size, queue = int(flow["size_bytes"]), int(flow["queue"])
        common: Fields = {
            "elements": self._memory,
            "element_count": size,
            "element_type": int(ElementType.BYTES),
            "tensor": number,
            "notify": 1,
        }
        policy = {
            "loss_bound": 0.0 if flow["settings"] else law.loss_bound,
            "important_bound": 0.0 if flow["settings"] else law.least_important_bound,
            "stop_rule": lib.MLT_PATIENT if law.stop == "patient" else lib.MLT_PAPER,
        }
        receive = common | {"flow": connection.tokens[destination], "policy": policy}
        important = self._random.random(int(flow["packets"])) >= law.unimportant_share
        send = common | {
            "flow": connection.tokens[source],
            "importance": lib.MLT_BY_BITMAP,
            "important": np.packbits(important, bitorder="little"),
            "important_if_whole": 1,
            "burst_packets": self._config(source).burst,
            "layer": queue,
            "priority": queue,
            "tos_important": queue << 2 | _ECT,
            "tos_unimportant": queue << 2,
            "seed": self._seed << 32 | number,
        }
        for host, posted in (
            (destination, self._planes[destination].post_receives([receive])),
            (source, self._planes[source].post_sends([send])),
        ):
            self._transfers[host, posted[0]] = number
            self._step(host)

    def _end(self, host: int, transfer: int) -> None:
        number = self._transfers.pop((host, transfer))
        plane = self._planes[host]
        result = plane.result(transfer)
        if result.status != lib.MLT_OK:
            ends = [self.network.ports[self.flows[name][number]].name for name in ("source", "destination")]
            raise UserInputError(
                f"has failed after {self.now_picoseconds / PICOSECONDS:g} s: {plane.text(result)}",
                where=f"flow {number}, {' to '.join(ends)}",
            )
        if not result.is_send:
            self.flows["arrived"][number] = result.arrived_packets
            external.complete(self.state[0], number)
            engine.tell_followers(self.state[0])
        plane.release(transfer)

    def _config(self, host: int) -> AgentConfig:
        """What an agent of this host would take for its settings."""
        law = self._transport
        return AgentConfig(
            addresses=(_ADDRESS,),
            line_rate=self.network.ports[host].rate_bps,
            mtu_bytes=law.payload_bytes + AGENT_HEADER_BYTES,
            burst_packets=law.burst_packets,
        )

    def _connection(self, number: int) -> _Connection:
        """The connection of a flow's hosts, which is opened for the first one."""
        flow = self.flows[number]
        hosts = [int(flow["source"]), int(flow["destination"])]
        connection = self._connections.get(frozenset(hosts))
        if connection is None:
            tokens = {host: self._plane(host).reserve() for host in hosts}
            connection = self._connections[frozenset(hosts)] = _Connection(number, tokens)
            for host, peer in zip(hosts, reversed(hosts), strict=True):
                self._by_token[host, tokens[host]] = connection
                options = self._options(host, int(flow["back_queue"])) | {"peer_token": tokens[peer]}
                paths = [path_fields(_ADDRESS, 1)] * min(int(flow["paths"]), lib.MLT_MOST_PATHS)
                self._planes[host].open(tokens[host], options, paths)
        return connection

    def _options(self, host: int, control_queue: int) -> Fields:
        """Those that the agent opens a connection with, where files say no more than the line's rate."""
        config, law = self._config(host), self._transport
        settings, window_bytes = DatagramSettings(), config.buffer_bytes // 2
        datagram_bytes = law.payload_bytes + AGENT_HEADER_BYTES - _IP_UDP_BYTES
        return {
            "send_datagram_bytes": datagram_bytes,
            "receive_datagram_bytes": datagram_bytes,
            "silence_ns": round(settings.silence_seconds * 1e9),
            "ack_packets": law.packets_per_ack,
            "ack_delay_ns": min(config.acknowledgement_delay_ns, settings.most_delay_ns),
            "control_tos": control_queue << 2 | _ECT,
            "has_credit": True,
            "port_bps": config.line_rate_bps,
            "receive_window_bytes": window_bytes,
            "rate": config.rate_options(window_bytes) | {"kind": lib.MLT_CREDIT},
        }

    def _plane(self, host: int) -> VirtualPlane:
        if host not in self._planes:
            seed = self._seed * len(self.network.ports) + host + 1
            self._planes[host] = VirtualPlane(seed=seed, now_ns=self._now_ns)
        return self._planes[host]
