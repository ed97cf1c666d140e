"""A switch against the reference model, or against another switch: byte for byte from the same beginnings."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from bmv2_tests.model import ReferenceSwitch, Verdict
from bmv2_tests.packets import barrier, barrier_lines, is_barrier, plug
from bmv2_tests.random_packets import Round, is_for_a_cable, random_frame, random_round
from bmv2_tests.switch import QUEUE_COUNTERS, AnySwitch, patiently, place, ticket_commands
from mltswitch.p4.program import Program
from mltswitch.queueing.decision import Decision

PACKETS_PER_ROUND: Final = 1000
_WINDOW: Final = 100
"""Frames that are sent before the switch has shown that it keeps up; more could overrun its sockets."""
_DECISIONS: Final = {
    "forwarded_unmarked": Decision.FORWARD,
    "forwarded_marked": Decision.MARK,
    "dropped_unimportant": Decision.DROP_UNIMPORTANT,
    "dropped_limit": Decision.DROP_LIMIT,
}


class Policers:
    """Token buckets that nothing refills, as the switch has them in these tests; open until they are set."""

    def __init__(self) -> None:
        self.left_bytes: dict[tuple[int, int], int] = {}

    def is_exceeding(self, port: int, queue: int, size_bytes: int) -> bool:
        """Take so many bytes out of the bucket of a queue, if it holds as many."""
        left = self.left_bytes.get((port, queue))
        if left is None:
            return False
        if left < size_bytes:
            return True
        self.left_bytes[port, queue] = left - size_bytes
        return False


def compare(switch: AnySwitch, program: Program, seed: int, *, packets: int = PACKETS_PER_ROUND) -> list[str]:
    """The differences of one round, for people to read; none where switch and model agree."""
    planned, frames = _planned(switch, seed, packets)
    return patiently(lambda: _compare(switch, program, planned, frames))


def observed(switch: AnySwitch, program: Program, seed: int) -> dict[str, object]:
    """All that one round shows of a switch: what comes out, what waits, and what was counted."""
    planned, frames = _planned(switch, seed, PACKETS_PER_ROUND)
    came = patiently(lambda: _send(switch, program, planned, _windows(frames)))
    return {
        "frames": Counter((port, frame.hex()) for port, frame in came if not is_barrier(frame)),
        "tickets": {where: switch.tickets(*where) for where in planned.held},
        "counters": dict(switch.control.counters()),
        "refused": switch.refused(),
    }


def _planned(switch: AnySwitch, seed: int, packets: int) -> tuple[Round, list[bytes]]:
    rng = Random(seed)  # noqa: S311  # nothing is secret
    planned = random_round(rng, len(switch.ends))
    return planned, [
        frame for _ in range(packets) if is_for_a_cable(frame := random_frame(rng, planned.dscps))
    ]


def _windows(frames: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [frames[first : first + _WINDOW] for first in range(0, len(frames), _WINDOW)]


def _lines(switch: AnySwitch, planned: Round) -> list[str]:
    return [*planned.lines, *barrier_lines(switch.ends)]


def _send(
    switch: AnySwitch, program: Program, planned: Round, windows: Sequence[Sequence[bytes]]
) -> list[tuple[int, bytes]]:
    """(port, frame) of all that comes out, the queues having been held meanwhile."""
    switch.load(program, _lines(switch, planned))
    switch.drain()
    with switch.held(planned.held) as hold:
        _set_states(switch, planned)
        came = []
        for window in windows:
            for frame in window:
                switch.ends[planned.ingress_port].send(frame)
            came += hold.settle(planned.ingress_port)
        return came + hold.release()


def _compare(switch: AnySwitch, program: Program, planned: Round, frames: Sequence[bytes]) -> list[str]:
    policers = Policers()
    model = ReferenceSwitch(_lines(switch, planned), policers.is_exceeding)
    expected: defaultdict[int, defaultdict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    windows = _windows(frames)
    came = _send(switch, program, planned, windows)
    _plug_model(model, planned)
    policers.left_bytes.update(planned.bursts_bytes)
    for window in windows:
        for frame in (*window, barrier(1, 0)):
            verdict = model.receive(planned.ingress_port, frame)
            if isinstance(verdict, Verdict) and verdict.data and not is_barrier(frame):
                expected[verdict.port][verdict.queue].append(verdict.data)
    _serve_all(model)
    for port in switch.ends:
        model.receive(1, barrier(port, 0))
    return [
        *_differing_frames({port: expected[port] for port in switch.ends}, came),
        *_differing_states(switch, model, planned),
        *_differing_counters(switch, model),
    ]


def _plug_model(model: ReferenceSwitch, planned: Round) -> None:
    """What `hold.plug` did."""
    for port, queue in planned.held:
        model.receive(1, plug(port, queue, 0))
        model.serve(port, queue)
    for port, queue in planned.held:
        model.receive(1, plug(port, queue, 1))
    model.receive(1, barrier(1, 0))
    for where, (admitted, left) in planned.states.items():
        model.queues[where].admitted_bytes, model.queues[where].left_bytes = admitted, left


def _set_states(switch: AnySwitch, planned: Round) -> None:
    bursts = planned.bursts_bytes.items()
    switch.control.write(
        [f"meter_set_rates policers {place(*where)} 0:{burst} 0:{burst}" for where, burst in bursts]
    )
    states = planned.states.items()
    switch.cli.run(*(line for where, tickets in states for line in ticket_commands(*where, *tickets)))


def _serve_all(model: ReferenceSwitch) -> None:
    for (port, queue), state in list(model.queues.items()):
        while state.waiting:
            model.serve(port, queue)


def _differing_frames(
    expected: Mapping[int, Mapping[int, list[bytes]]], came: Sequence[tuple[int, bytes]]
) -> list[str]:
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for port, frame in came:
        if not is_barrier(frame):
            found[port].append(frame)
    differences = []
    for port, queues in sorted(expected.items()):
        awaited = Counter(frame for frames in queues.values() for frame in frames)
        differences += [f"port {port}: lacks {frame.hex()}" for frame in awaited - Counter(found[port])]
        differences += [
            f"port {port}: should not send {frame.hex()}" for frame in Counter(found[port]) - awaited
        ]
        for queue, frames in queues.items():
            members = set(frames) - {
                frame for other, rest in queues.items() if other != queue for frame in rest
            }
            if [frame for frame in found[port] if frame in members] != [
                frame for frame in frames if frame in members
            ]:
                differences.append(f"port {port}, queue {queue}: out of order")
    return differences


def _differing_states(switch: AnySwitch, model: ReferenceSwitch, planned: Round) -> list[str]:
    differences = []
    for where in planned.held:
        state = model.queues[where]
        real = switch.tickets(*where)
        awaited = (state.admitted_bytes, state.left_bytes)
        if real != awaited:
            differences.append(f"queue {where}: admitted and left {real}, the model {awaited}")
    return differences


def _differing_counters(switch: AnySwitch, model: ReferenceSwitch) -> list[str]:
    differences = []
    for where, real in switch.control.counters().items():
        state = model.queues[where]
        for name in QUEUE_COUNTERS:
            cell = getattr(real, name)
            awaited = state.decided[_DECISIONS[name]]
            if (cell.packets, cell.bytes) != (awaited.packets, awaited.size_bytes):
                differences.append(f"queue {where}: {name} {cell}, the model {awaited}")
    refused = {reason.name.lower(): packets for reason, packets in model.refused.items()}
    real_refused = dict(switch.control.refusals())
    if real_refused != refused:
        differences.append(f"refused {real_refused}, the model {refused}")
    return differences
