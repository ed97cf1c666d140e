"""The threaded door over loopback: a busy interpreter, idle and urgent threads, and no compiled module."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.dataplane.binding import DataPlane, Fields, lib, path_fields
from tests.hostagent.dataplane.ends import SECOND, completion, gradients

PATIENCE_NS = 20 * SECOND
KEYS = ({"send_key": b"a" * 16, "receive_key": b"b" * 16}, {"send_key": b"b" * 16, "receive_key": b"a" * 16})


def udp_socket(address: str = "127.0.0.1") -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, 0))
    return bound


def options(peer_token: int, end: int, *, keys: bool = False, datagram_bytes: int = 1472) -> Fields:
    secrets: dict[str, Any] = {**KEYS[end], "send_salt": b"salt", "receive_salt": b"salt"} if keys else {}
    return Fields(
        peer_token=peer_token,
        send_datagram_bytes=datagram_bytes,
        receive_datagram_bytes=datagram_bytes,
        **secrets,
    )


@contextmanager
def two_handles() -> Iterator[tuple[list[DataPlane], list[int]]]:
    with DataPlane() as first, DataPlane() as second, udp_socket() as one, udp_socket() as other:
        planes, sockets = [first, second], [one, other]
        for plane, bound in zip(planes, sockets, strict=True):
            _, features = plane.add_socket(bound)
            assert features & lib.MLT_TIMESTAMPS
            plane.start()
        tokens = [plane.reserve() for plane in planes]
        for end, plane in enumerate(planes):
            address, port, *_ = sockets[1 - end].getsockname()
            path = path_fields(address=address, port=port)
            plane.open(tokens[end], options(tokens[1 - end], end), [path])
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


def test_without_the_compiled_module_one_error_says_what_to_do() -> None:
    program = (
        "import sys; sys.modules['mltswitch.hostagent.dataplane._dataplane'] = None\n"
        "from mltswitch.errors import MachineError\n"
        "try:\n    import mltswitch.hostagent.dataplane.binding\n"
        "except MachineError as error:\n    print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Install a C compiler" in ended.stdout
