"""The bench as a whole: starts both ends, deals out the time, and gathers what they say."""

import os
import platform
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median
from typing import Any, Final

from mltswitch.errors import MachineError
from mltswitch.hostagent.announced import Advance
from mltswitch.hostagent.bench.end import (
    IN_FLIGHT,
    PATIENCE_SECONDS,
    Command,
    Connect,
    Failed,
    Open,
    Stream,
    StreamFigures,
    Tag,
    Usage,
    serve,
)
from mltswitch.hostagent.control.certificates import now_utc
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES, maximum_burst_packets
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.wire import AGENT_HEADER_BYTES
from mltswitch.wire.internet import ip_udp_bytes

SENDER: Final = "sender"
RECEIVER: Final = "receiver"
PATHS: Final = 4
SENDER_ADDRESSES: Final = tuple(f"127.0.0.{2 + path}" for path in range(PATHS))
RECEIVER_ADDRESSES: Final = tuple(f"127.0.0.{2 + PATHS + path}" for path in range(PATHS))
BURSTS: Final = (1, 4, 16)
"""And as long as UDP_SEGMENT takes them."""
HANDSHAKES: Final = 5
TRIAL_TENSORS: Final = 1
"""Before each stream, to warm up, and to see how many fit into its time."""
LEAST_TENSORS: Final = IN_FLIGHT
BYTES_PER_GB: Final = 1e9
Documents = Callable[..., Open]
"""By the end's name: how its agent is opened."""
_PATIENCE_SECONDS: Final = 2 * PATIENCE_SECONDS
_GOODBYE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """Of one stream of whole tensors; all figures measured."""

    transport: str
    burst_packets: int | None
    """None over TCP, where there are no packets of ours."""
    policy: str
    authenticate: bool
    tensors: int
    goodput_bps: float
    """Bits of tensors over the receiver's time."""
    sender_cpu_seconds_per_gb: float
    receiver_cpu_seconds_per_gb: float
    resent_share: float
    """Of the packets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeResult:
    """From `connect` until the peer has said hello; medians."""

    seconds: float
    connecting_cpu_seconds: float
    accepting_cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """All of it measured, and true of this machine and of loopback alone."""

    kernel: str
    processors: int
    size_bytes: int
    """Of one tensor."""
    mtu_bytes: int
    streams: tuple[StreamResult, ...]
    tagging_seconds: float
    """Processor time to tag one tensor by magnitude."""
    plain_handshake: HandshakeResult
    tls_handshake: HandshakeResult | None
    why_no_tls: str
    """Empty where it was measured."""
    seconds: float


@dataclass(frozen=True, slots=True)
class _Case:
    burst_packets: int
    policy: str = "magnitude"
    authenticate: bool = False
    transport: Transport = Transport.MLT


class _End:
    """A process of the bench."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def tell(self, command: Command) -> None:
        self._pipe.send(command)

    def answer(self) -> Any:
        """Raises MachineError where the other process says that it failed, or nothing at all."""
        try:
            if not self._pipe.poll(_PATIENCE_SECONDS):
                raise MachineError(f"a process of the bench says nothing for {_PATIENCE_SECONDS:g} s")
            found = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise MachineError("a process of the bench has ended before its time") from None
        if isinstance(found, Failed):
            raise MachineError(found.what, where="bench")
        return found

    def ask(self, command: Command) -> Any:
        self.tell(command)
        return self.answer()


def run_bench(
    *, size_bytes: int, mtu_bytes: int, seconds: float, advance: Advance = lambda *_: None
) -> BenchResult:
    """Everything, in about so many seconds, if they are enough for a few tensors each; raises MachineError.

    Args:
        size_bytes: of one tensor of float32, rounded down to whole elements.
        mtu_bytes: packets as on a network of this MTU, although loopback would take longer ones.
        seconds: for all of it.
        advance: is told what is measured, and how much of all is done.
    """
    size_bytes -= size_bytes % 4
    payload_bytes = min(mtu_bytes - ip_udp_bytes(RECEIVER_ADDRESSES[0]), UDP_MAXIMUM_PAYLOAD_BYTES)
    longest = maximum_burst_packets(payload_bytes)
    cases = [_Case(burst) for burst in (*(burst for burst in BURSTS if burst < longest), longest)]
    cases.append(_Case(longest, "none"))
    cases.append(_Case(longest, "none", transport=Transport.TCP))
    cases.append(_Case(longest, authenticate=True))
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mltswitch-bench-")))
        sender, receiver = stack.enter_context(bench_process()), stack.enter_context(bench_process())
        steps = len(cases) + 2

        def document(
            name: str,
            *,
            authenticate: bool = False,
            keys: str | None = None,
            transport: Transport = Transport.MLT,
        ) -> Open:
            addresses = RECEIVER_ADDRESSES if name == RECEIVER else SENDER_ADDRESSES
            return Open(
                {
                    "name": name,
                    "addresses": list(addresses),
                    "data_port": 0,
                    "mtu_bytes": mtu_bytes,
                    "authenticate": authenticate,
                    "keys": keys,
                    "transport": transport,
                }
                | ({"listen": f"{addresses[0]}:0"} if name == RECEIVER else {})
            )

        advance("connecting", 0, steps)
        plain = _handshakes(sender, receiver, document)
        tls, why = _tls_handshakes(sender, receiver, document, folder)
        advance("tagging", 1, steps)
        tagging = sender.ask(Tag(size_bytes, payload_bytes - AGENT_HEADER_BYTES, "magnitude"))
        streams: list[StreamResult] = []
        ends_at = started + seconds
        connected: tuple[bool, Transport] | None = None
        rounds = 1
        for number, case in enumerate(cases):
            advance(_text(case), number + 2, steps)
            if connected != (case.authenticate, case.transport):
                connected, rounds = (case.authenticate, case.transport), 1
                _connect(sender, receiver, document, authenticate=connected[0], transport=connected[1])
            slice_seconds = (ends_at - time.monotonic()) / (len(cases) - number)
            found, rounds = _stream(sender, receiver, case, size_bytes, slice_seconds, rounds)
            streams.append(found)
        advance("done", steps, steps)
    return BenchResult(
        kernel=platform.release(),
        processors=os.cpu_count() or 1,
        size_bytes=size_bytes,
        mtu_bytes=mtu_bytes,
        streams=tuple(streams),
        tagging_seconds=tagging,
        plain_handshake=plain,
        tls_handshake=tls,
        why_no_tls=why,
        seconds=time.monotonic() - started,
    )


def _text(case: _Case) -> str:
    if case.transport is Transport.TCP:
        return "TCP"
    marks = ", with tags" if case.authenticate else ""
    return f"bursts of {case.burst_packets}, policy {case.policy}{marks}"


def _connect(sender: _End, receiver: _End, document: Documents, **options: Any) -> None:
    endpoint: Endpoint = receiver.ask(document(RECEIVER, **options))
    sender.ask(document(SENDER, **options))
    sender.ask(Connect(RECEIVER, endpoint))


def _handshakes(
    sender: _End, receiver: _End, document: Documents, keys: Path | None = None
) -> HandshakeResult:
    """Each with agents of its own: nothing is resumed, and no connection is there already."""
    seconds, connecting, accepting = [], [], []
    for _ in range(HANDSHAKES):
        folders = {name: str(keys / "hosts" / name) if keys else None for name in (SENDER, RECEIVER)}
        endpoint = receiver.ask(document(RECEIVER, keys=folders[RECEIVER]))
        sender.ask(document(SENDER, keys=folders[SENDER]))
        before = receiver.ask(Usage())
        took, cpu = sender.ask(Connect(RECEIVER, endpoint))
        accepting.append(receiver.ask(Usage()) - before)
        seconds.append(took)
        connecting.append(cpu)
    return HandshakeResult(
        seconds=median(seconds),
        connecting_cpu_seconds=median(connecting),
        accepting_cpu_seconds=median(accepting),
    )


def _tls_handshakes(
    sender: _End, receiver: _End, document: Documents, folder: Path
) -> tuple[HandshakeResult | None, str]:
    from mltswitch.hostagent.control.keys import make_keys

    try:
        hosts: dict[str, list[Any]] = {SENDER: [], RECEIVER: []}
        make_keys(folder / "job", hosts, days=1, authority_days=2, now=now_utc())
    except MachineError as error:  # cryptography is an extra
        return None, str(error)
    return _handshakes(sender, receiver, document, folder / "job"), ""


def _stream(
    sender: _End, receiver: _End, case: _Case, size_bytes: int, seconds: float, first_round: int
) -> tuple[StreamResult, int]:
    """A trial, and then as many tensors as fit; and the number of the next round."""

    def both(tensors: int, first: int) -> tuple[StreamFigures, StreamFigures, int]:
        for end, is_sender, peer in ((receiver, False, SENDER), (sender, True, RECEIVER)):
            end.tell(Stream(peer, is_sender, size_bytes, tensors, first, case.burst_packets, case.policy))
        received, sent = receiver.answer(), sender.answer()
        return sent, received, first + tensors

    _, trial, following = both(TRIAL_TENSORS, first_round)
    each_seconds = trial.seconds / TRIAL_TENSORS
    tensors = max(LEAST_TENSORS, int((seconds - trial.seconds) / each_seconds))
    sent, received, following = both(tensors, following)
    gigabytes = size_bytes * tensors / BYTES_PER_GB
    result = StreamResult(
        transport=case.transport,
        burst_packets=case.burst_packets if case.transport is Transport.MLT else None,
        policy=case.policy,
        authenticate=case.authenticate,
        tensors=tensors,
        goodput_bps=size_bytes * tensors * 8 / received.seconds,
        sender_cpu_seconds_per_gb=sent.cpu_seconds / gigabytes,
        receiver_cpu_seconds_per_gb=received.cpu_seconds / gigabytes,
        resent_share=sent.packets_resent / sent.packets_sent if sent.packets_sent else 0.0,
    )
    return result, following


@contextmanager
def bench_process() -> Iterator[_End]:
    """A process with an interpreter of its own, which ends with the block."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    # A terminal interrupts all processes at once, and this one decides when the others end.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    theirs.close()
    try:
        yield _End(ours)
    finally:
        ours.close()
        process.join(_GOODBYE_SECONDS)
        if process.is_alive():
            process.terminate()
            process.join(_GOODBYE_SECONDS)
