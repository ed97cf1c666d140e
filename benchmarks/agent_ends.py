"""The host agent's ends in the benchmarks: processes in namespaces, and what they do by its public face.

A `Worker` is a process that calls functions of this module (or another) for the benchmark. The functions keep
agents and busy threads in module variables, one set a process.
"""

import multiprocessing
import resource
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MachineError, MltswitchError
from mltswitch.hostagent import Agent, AgentConfig, AgentError, ReceiveRequest, SendRequest, Transfer
from mltswitch.hostagent.security.keys import make_keys
from mltswitch.lab import NamespaceHandle

CONTROL_PORT: Final = 20_811
PATIENCE_SECONDS: Final = 60.0
"""Nothing here takes so long unless it hangs."""
SPIN_SECONDS: Final = 200e-6
DSCP: Final = 34
CONTROL_DSCP: Final = 40
BYTES_PER_GB: Final = 1e9
STREAM_IN_FLIGHT: Final = 3

agents: Final[dict[str, Agent]] = {}
"""Of this process, by name."""
_rounds: Final[Counter[tuple[str, str, bool]]] = Counter()
_posted_ahead: Final[deque[tuple[Transfer, NDArray[np.float32]]]] = deque()
_is_spinning: Final = threading.Event()


class Worker:
    """A process in a namespace that calls functions, one after the other; it is ended with the block."""

    def __init__(self, namespace: NamespaceHandle) -> None:
        context = multiprocessing.get_context("spawn")
        self._name = namespace.name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, namespace), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def start(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Begin a call."""
        self._pipe.send((function, arguments, named))

    def result(self) -> Any:
        """Of the oldest call that was begun; raises MachineError for one that failed."""
        try:
            if not self._pipe.poll(PATIENCE_SECONDS):
                raise MachineError(f"said nothing for {PATIENCE_SECONDS:g} s", where=self._name)
            is_good, found = self._pipe.recv()
        except EOFError:
            raise MachineError("has ended", where=self._name) from None
        if not is_good:
            raise MachineError(found, where=self._name)
        return found

    def is_ready(self) -> bool:
        """Whether `result` would return at once."""
        return bool(self._pipe.poll())

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Its result; raises MachineError."""
        self.start(function, *arguments, **named)
        return self.result()


def both(first: Worker, second: Worker, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The same call at two ends at once, told apart by a first argument: True, False."""
    first.start(function, True, *arguments, **named)
    second.start(function, False, *arguments, **named)
    return first.result(), second.result()


def _work(pipe: Any, namespace: NamespaceHandle) -> None:
    with namespace.entered():
        while True:
            try:
                function, arguments, named = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send((True, function(*arguments, **named)))
            except (MltswitchError, OSError, RuntimeError) as error:
                pipe.send((False, f"{function.__name__}: {error}"))


def cpu_seconds() -> float:
    """User and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def wait_until(at_ns: int) -> None:
    """Sleep, and spin at the end."""
    left = (at_ns - time.monotonic_ns()) / 1e9
    if left > SPIN_SECONDS:
        time.sleep(left - SPIN_SECONDS)
    while time.monotonic_ns() < at_ns:
        pass


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Several calls in this process at once, each in a thread of its own; what they found."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def bytes_out(interface: str) -> int:
    """What this process's host has sent by an interface: whole IP packets on those of a star."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    return next(
        int(line.split(":")[1].split()[8]) for line in lines if line.split(":")[0].strip() == interface
    )


def spin(is_on: bool) -> None:
    """A thread of this process that computes in Python, from now on or no more."""

    def busy() -> None:
        while _is_spinning.is_set():
            pass

    if is_on and not _is_spinning.is_set():
        _is_spinning.set()
        threading.Thread(target=busy, daemon=True).start()
    elif not is_on:
        _is_spinning.clear()


@cache
def random_tensor(size_bytes: int, seed: int) -> NDArray[np.float32]:
    """Like gradients, normally distributed. The same memory each time: no end makes the other wait for it."""
    return np.random.default_rng(seed).standard_normal(size_bytes // 4, dtype=np.float32)


# Agents


def agent_fields(name: str, addresses: Sequence[str], line_rate_bps: float, **more: Any) -> dict[str, Any]:
    """Of an AgentConfig beyond loopback, without keys unless `more` names their folder."""
    return {
        "name": name,
        "addresses": tuple(addresses),
        "listen": f"{addresses[0]}:{CONTROL_PORT}",
        "line_rate": int(line_rate_bps),
        "classes": {"control_dscp": CONTROL_DSCP, "gradient_dscp": [DSCP]},
        "plaintext": "keys" not in more,
        **more,
    }


def new_keys(folder: Path, *names: str) -> dict[str, str]:
    """Name → folder of its keys."""
    return {host.name: str(host.folder) for host in make_keys(folder / "keys", names).hosts}


def open_agent(fields: dict[str, Any], namespace: NamespaceHandle | None = None) -> None:
    """One more agent in this process; in another namespace than the process, if need be."""
    with ExitStack() as stack:
        if namespace is not None:
            stack.enter_context(namespace.entered())
        agent = Agent(AgentConfig(**fields))
    agents[agent.name] = agent


def connect(name: str, peer: str, remote: str) -> None:
    """One of this process's agents, with a peer."""
    agents[name].connect(peer, remote)


def set_cap(name: str, peer: str, channel: str, cap_bps: float | None) -> None:
    """One of this process's agents sends to a peer no faster than this; None: as configured."""
    agents[name].channel(channel).set_rate(peer, cap_bps=cap_bps)


def heard(name: str, peer: str, channel: str) -> dict[str, Any]:
    """What a connection knows of the network."""
    found = agents[name].snapshot().peers[peer][channel]
    wanted = ("rate_bps", "window_bytes", "base_round_trip_seconds", "bottleneck_bps", "needless_packets")
    return {key: getattr(found, key) for key in wanted}


def post(
    name: str,
    peer: str,
    tensor: NDArray[Any],
    *,
    sends: bool,
    slot: int = 0,
    channel: str = "default",
    **more: Any,
) -> Transfer:
    """The next round of a tensor; the first waits for a peer that is just connecting."""
    _rounds[name, peer, sends] += 1
    if _rounds[name, peer, sends] == 1:
        agents[name].wait_for_peers([peer])
    options = {"tensor": slot, "round_number": _rounds[name, peer, sends]} | more
    by = agents[name].channel(channel)
    return by.post_send(peer, tensor, **options) if sends else by.post_receive(peer, tensor, **options)


def stream(
    sends: bool,
    name: str,
    peer: str,
    size_bytes: int,
    count: int,
    in_flight: int,
    *,
    loss_bound: float = 0.0,
    channel: str = "default",
    **of_sends: Any,
) -> dict[str, Any]:
    """So many tensors one after the other, so many on their way; what became of them."""
    tensors = [random_tensor(size_bytes, slot) for slot in range(in_flight)]
    options = of_sends if sends else {"loss_bound": loss_bound}
    cpu, started = cpu_seconds(), time.monotonic()
    posted: deque[Transfer] = deque()
    ended = []
    for number in range(count + in_flight):
        if len(posted) == in_flight or (number >= count and posted):
            ended.append(posted.popleft().wait().statistics)
        if number < count:
            slot = number % in_flight
            posted.append(post(name, peer, tensors[slot], sends=sends, slot=slot, channel=channel, **options))
    seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu
    sent = sum(entry.packets_sent for entry in ended)
    return {
        "bytes": size_bytes * count,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "missing_share": sum(entry.missing_share for entry in ended) / count,
        "resent_share": sum(entry.packets_resent for entry in ended) / sent if sent else 0.0,
        "completion_seconds": median(entry.seconds for entry in ended),
    }


def stream_until(sends: bool, until_ns: int, name: str, peer: str, size_bytes: int, channel: str) -> int:
    """Tensors one after the other until that instant, some on their way; bytes that had arrived by then."""
    posted: deque[Transfer] = deque()
    arrived = number = 0
    while (left_ns := until_ns - time.monotonic_ns()) > 0:
        if len(posted) == STREAM_IN_FLIGHT:
            try:
                posted[0].wait(left_ns / 1e9)
            except AgentError:  # the time is up, here or at the peer
                break
            arrived += posted.popleft().progress.packets_received
        slot = number % STREAM_IN_FLIGHT
        tensor = random_tensor(size_bytes, slot)
        posted.append(post(name, peer, tensor, sends=sends, slot=slot, channel=channel))
        number += 1
    progress = [transfer.progress for transfer in posted]
    for transfer in posted:
        transfer.cancel()
    packets = progress[0].packets
    return round(size_bytes * (arrived + sum(each.packets_received for each in progress)) / packets)


def streams_until(sends: bool, until_ns: int, pairs: Sequence[tuple[str, str]], size_bytes: int) -> list[int]:
    """`stream_until` over several pairs of a sender and a receiver, of which this process has one end."""
    ends = [pair if sends else pair[::-1] for pair in pairs]
    return together(*(partial(stream_until, sends, until_ns, *end, size_bytes, "default") for end in ends))


def there_and_back(calls: bool, name: str, peer: str, size_bytes: int, count: int) -> dict[str, Any]:
    """A tensor to the peer and one back, again and again; memory for the next one is posted ahead."""
    tensor = random_tensor(size_bytes, 0)
    buffers = [np.empty_like(tensor) for _ in range(2)]

    def receive(number: int) -> Transfer:
        return post(name, peer, buffers[number % 2], sends=False)

    receives = deque([receive(0)])
    seconds = []
    cpu = cpu_seconds()
    for number in range(count):
        if number + 1 < count:
            receives.append(receive(number + 1))
        started = time.perf_counter()
        sent = post(name, peer, tensor, sends=True) if calls else None
        receives.popleft().wait()
        seconds.append(time.perf_counter() - started)
        (sent or post(name, peer, tensor, sends=True)).wait()
    return {"seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


def bucket(sends: bool, name: str, peer: str, size_bytes: int, tensors: int, count: int) -> dict[str, Any]:
    """Many small tensors in one post, again and again: seconds of each post until all have ended."""
    data = random_tensor(size_bytes * tensors, 0).reshape(tensors, -1)
    agent, seconds, cpu = agents[name], [], cpu_seconds()
    for number in range(1, count + 1):
        started = time.perf_counter()
        if sends:
            posted = agent.post_sends(
                peer,
                [SendRequest(data=row, tensor=9 + at, round_number=number) for at, row in enumerate(data)],
            )
        else:
            posted = agent.post_receives(
                peer,
                [
                    ReceiveRequest(buffer=row, tensor=9 + at, round_number=number)
                    for at, row in enumerate(data)
                ],
            )
        for transfer in posted:
            transfer.wait()
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


# Many to one


def post_gather(
    name: str,
    peers: Sequence[str],
    size_bytes: int,
    channel: str,
    gather: Mapping[str, Any] | None = None,
    **of_receives: Any,
) -> None:
    """Memory for a tensor from each peer, in one gather where its options are given."""
    options = (
        of_receives
        if gather is None
        else of_receives | {"gather": agents[name].channel(channel).gather(**gather)}
    )
    for peer in peers:
        buffer = np.empty(size_bytes // 4, np.float32)
        _posted_ahead.append((post(name, peer, buffer, sends=False, channel=channel, **options), buffer))


def gathered() -> dict[str, list[Any]]:
    """Of what `post_gather` posted, in its order."""
    ended = [_posted_ahead.popleft()[0].wait().statistics for _ in range(len(_posted_ahead))]
    return {
        "ended_ns": [entry.ended_ns for entry in ended],
        "missing_share": [entry.missing_share for entry in ended],
        "ending": [entry.ending for entry in ended],
        "lt_seconds": [entry.lt_seconds for entry in ended],
    }


def scatter(
    at_ns: int, names: Sequence[str], peer: str, size_bytes: int, channel: str
) -> dict[str, list[Any]]:
    """At that instant, a tensor to one peer from each of these agents of this process."""
    return scatter_pairs(at_ns, [(name, peer) for name in names], size_bytes, channel)


def scatter_pairs(
    at_ns: int, pairs: Sequence[tuple[str, str]], size_bytes: int, channel: str = "default"
) -> dict[str, list[Any]]:
    """At that instant, a tensor over each pair of an agent of this process and a peer."""
    tensor = random_tensor(size_bytes, 0)
    wait_until(at_ns)
    posted = [post(name, peer, tensor, sends=True, channel=channel) for name, peer in pairs]
    ended = [transfer.wait().statistics for transfer in posted]
    return {
        "packets": [entry.packets for entry in ended],
        "packets_resent": [entry.packets_resent for entry in ended],
        "packets_needless": [entry.packets_needless for entry in ended],
    }
