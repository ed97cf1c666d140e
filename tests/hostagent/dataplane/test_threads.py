"""The threaded door over loopback: handles in one process and in two, a busy interpreter, fork, endings."""

import multiprocessing
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.dataplane.binding import DataPlane, DataPlaneError, Feature, Fields, lib, path_fields
from tests.hostagent.dataplane.ends import SECOND, completion, gradients

PATIENCE_NS = 20 * SECOND
KEYS = ({"send_key": b"a" * 16, "receive_key": b"b" * 16}, {"send_key": b"b" * 16, "receive_key": b"a" * 16})


def udp_socket(address: str = "127.0.0.1") -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, 0))
    return bound


def options(peer_token: int, end: int, *, keys: bool, datagram_bytes: int = 1472) -> Fields:
    secrets: dict[str, Any] = {**KEYS[end], "send_salt": b"salt", "receive_salt": b"salt"} if keys else {}
    return Fields(
        peer_token=peer_token,
        send_datagram_bytes=datagram_bytes,
        receive_datagram_bytes=datagram_bytes,
        **secrets,
    )


@contextmanager
def two_handles(
    *, keys: bool = False, address: str = "127.0.0.1"
) -> Iterator[tuple[list[DataPlane], list[int]]]:
    with (
        DataPlane() as first,
        DataPlane() as second,
        udp_socket(address) as one,
        udp_socket(address) as other,
    ):
        planes, sockets = [first, second], [one, other]
        for plane, bound in zip(planes, sockets, strict=True):
            _, features = plane.add_socket(bound)
            assert Feature.TIMESTAMPS in features
            plane.start()
        tokens = [plane.reserve() for plane in planes]
        for end, plane in enumerate(planes):
            address, port, *_ = sockets[1 - end].getsockname()
            path = path_fields(address=address, port=port)
            plane.open(tokens[end], options(tokens[1 - end], end, keys=keys), [path])
        yield planes, tokens


def exchange(
    planes: list[DataPlane], tokens: list[int], data: Any, target: Any, *, round_: int = 0, **send: Any
) -> tuple[Any, Any]:
    common: dict[str, Any] = {"element_count": data.size, "element_type": 1, "tensor": 1, "round": round_}
    policy = completion(hard_ns=PATIENCE_NS)
    received = planes[1].post_receives([Fields(flow=tokens[1], elements=target, policy=policy, **common)])[0]
    request = Fields(flow=tokens[0], elements=data, deadline_ns=PATIENCE_NS, **common, **send)
    sent = planes[0].post_sends([request])[0]
    results = planes[0].wait(sent), planes[1].wait(received)
    assert [result.status for result in results] == [0, 0], DataPlane.text(results[1])
    planes[0].release(sent)
    planes[1].release(received)
    return results


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_large_and_small_tensors(keys: bool, address: str) -> None:
    with two_handles(keys=keys, address=address) as (planes, tokens):
        for round_, elements in enumerate((6_250_000, 1024, 1)):
            for burst_packets in (0, 1):
                data, target = gradients(elements), np.zeros(elements, np.float32)
                numbers = {"round_": 2 * round_ + burst_packets, "burst_packets": burst_packets}
                _, received = exchange(
                    planes, tokens, data, target, importance=lib.MLT_BY_MAGNITUDE, **numbers
                )
                assert np.array_equal(data, target)
                assert received.first_ns <= received.last_ns <= received.ended_ns


def test_a_busy_interpreter_does_not_slow_transfers_down() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    with two_handles() as (planes, tokens):
        data, target = gradients(1024), np.zeros(1024, np.float32)
        thread = threading.Thread(target=spin)
        thread.start()
        try:
            took = []
            for round_ in range(30):
                _, received = exchange(planes, tokens, data, target, round_=round_)
                took.append(received.ended_ns - received.posted_ns)
        finally:
            stop.set()
            thread.join()
    # The interpreter's 5 ms are between the two posts, not between packets.
    assert sorted(took)[15] < 15_000_000


def test_many_transfers_in_one_call_and_their_events() -> None:
    count = 1000
    with two_handles() as (planes, tokens):
        data, target = np.arange(count * 256, dtype=np.float32), np.zeros(count * 256, np.float32)
        common: dict[str, Any] = {"element_count": 256, "element_type": 1, "notify": True}
        rows = [slice(number * 256, number * 256 + 256) for number in range(count)]
        planes[1].post_receives(
            [Fields(flow=tokens[1], elements=target[row], tensor=at, **common) for at, row in enumerate(rows)]
        )
        planes[0].post_sends(
            [Fields(flow=tokens[0], elements=data[row], tensor=at, **common) for at, row in enumerate(rows)]
        )
        done = 0
        while done < count:
            assert select.select([planes[1].event_descriptor], [], [], 10)[0]
            while (event := planes[1].next_event()) is not None:
                assert (event.kind, event.value) == (lib.MLT_EVENT_DONE, 0)
                done += 1
        assert np.array_equal(data, target)


def other_end(connection: Connection, keys: bool) -> None:
    """Receives, adds one, sends back."""
    with DataPlane() as plane, udp_socket() as bound:
        plane.add_socket(bound)
        plane.start()
        token = plane.reserve()
        connection.send((token, bound.getsockname()[1]))
        peer_token, port = connection.recv()
        plane.open(token, options(peer_token, 1, keys=keys), [path_fields(address="127.0.0.1", port=port)])
        elements, rounds = connection.recv()
        memory = np.zeros(elements, np.float32)
        common: dict[str, Any] = {"flow": token, "element_count": elements, "element_type": 1, "tensor": 1}
        for round_ in range(rounds):
            received = plane.post_receives([Fields(elements=memory, round=round_, **common)])[0]
            plane.wait(received)
            memory += 1
            plane.wait(plane.post_sends([Fields(elements=memory, round=round_, **common)])[0])
        connection.recv()


@pytest.mark.parametrize(("elements", "rounds"), [(1024, 50), (6_250_000, 3)])
def test_there_and_back_between_two_processes(elements: int, rounds: int) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=other_end, args=(theirs, True))
    process.start()
    with DataPlane() as plane, udp_socket() as bound:
        plane.add_socket(bound)
        plane.start()
        token = plane.reserve()
        peer_token, port = ours.recv()
        ours.send((token, bound.getsockname()[1]))
        plane.open(token, options(peer_token, 0, keys=True), [path_fields(address="127.0.0.1", port=port)])
        ours.send((elements, rounds))
        data, back = gradients(elements), np.zeros(elements, np.float32)
        common: dict[str, Any] = {"flow": token, "element_count": elements, "element_type": 1, "tensor": 1}
        for round_ in range(rounds):
            received = plane.post_receives([Fields(elements=back, round=round_, **common)])[0]
            plane.post_sends([Fields(elements=data, round=round_, **common)])
            result = plane.wait(received, PATIENCE_NS)
            assert result is not None
            assert result.status == 0
            assert np.array_equal(back, data + np.float32(1))
        ours.send(None)
        process.join(20)
    assert process.exitcode == 0


def test_an_idle_thread_sleeps() -> None:
    with two_handles() as (planes, tokens):
        exchange(planes, tokens, gradients(1024), np.zeros(1024, np.float32))
        time.sleep(0.1)
        before = planes[0].counters().turns
        time.sleep(0.3)
        assert planes[0].counters().turns - before <= 2


def niceness() -> set[int]:
    """Of the threads of data planes."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if "mlt-data" in (task / "comm").read_text()]
    return {int((task / "stat").read_text().rpartition(")")[2].split()[16]) for task in tasks}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_only_long_tensors_are_urgent() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with two_handles() as (planes, tokens):
        seen = set[int]()
        for round_ in range(40):
            elements = 6_250_000 if round_ < 20 and -20 not in seen else 1024
            exchange(planes, tokens, gradients(elements), np.zeros(elements, np.float32), round_=round_)
            seen |= niceness()
            if elements == 1024:
                time.sleep(0.05)
                if niceness() == {before}:
                    break
        assert seen >= {-20}
        assert niceness() == {before}


def test_stopping_fails_what_is_open() -> None:
    with two_handles() as (planes, tokens):
        request = Fields(flow=tokens[0], elements=bytes(4), element_count=1, element_type=1, tensor=1)
        sent = planes[0].post_sends([request])[0]
        assert planes[0].wait(sent, 1_000_000) is None
        waited: list[Any] = []
        thread = threading.Thread(target=lambda: waited.append(planes[0].wait(sent)))
        thread.start()
        planes[0].close_flow(tokens[0])
        thread.join(10)
        assert waited[0].status == lib.MLT_FLOW_CLOSED


def test_after_fork_the_child_has_a_dead_handle() -> None:
    with two_handles() as (planes, tokens):
        process = os.fork()
        if not process:
            try:
                planes[0].reserve()
            except DataPlaneError as error:
                os._exit(0 if error.status == lib.MLT_DEAD else 2)
            os._exit(1)
        assert os.waitpid(process, 0)[1] == 0
        exchange(planes, tokens, gradients(1024), np.zeros(1024, np.float32))


def test_without_the_compiled_module_one_error_says_what_to_do() -> None:
    program = (
        "import sys; sys.modules['mltswitch.hostagent.dataplane._dataplane'] = None\n"
        "from mltswitch.errors import MachineError\n"
        "try:\n    import mltswitch.hostagent.dataplane.binding\n"
        "except MachineError as error:\n    print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Install a C compiler" in ended.stdout
