"""Ranks that find each other; threads stand for processes."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentConfig, DeadlineExceededError, Group, PeerUnreachableError
from mltswitch.hostagent.errors import RanksMissingError
from mltswitch.hostagent.group import was_there
from mltswitch.hostagent.spraying import Spraying
from tests.hostagent.background import eventually

PATIENCE = 30.0
TCP = AgentConfig(name="host", transport="tcp")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> int:
    """What torchrun sets for all ranks alike; the port of the rendezvous."""
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port - 1))
    return port


def start(
    pool: ThreadPoolExecutor, world: int, ranks: list[int], rendezvous: Any, **options: Any
) -> list[Future[Group]]:
    def group(rank: int) -> Group:
        settings: dict[str, Any] = {"config": TCP, "timeout_seconds": PATIENCE}
        return Group(rank, world, rendezvous, **(settings | options))

    return [pool.submit(group, rank) for rank in ranks]


def problems(world: int, ranks: list[int], rendezvous: Any, **options: Any) -> list[Exception]:
    with ThreadPoolExecutor(world) as pool:
        found = [future.exception(PATIENCE) for future in start(pool, world, ranks, rendezvous, **options)]
    assert all(isinstance(each, Exception) for each in found)
    return [each for each in found if isinstance(each, Exception)]


def all_gather(world: int) -> Callable[[str], list[str]]:
    barrier, texts = threading.Barrier(world), []

    def exchange(own: str) -> list[str]:
        texts.append(own)
        barrier.wait(PATIENCE)
        return texts

    return exchange


@pytest.mark.parametrize("how", ["env", "file", "function"])
@pytest.mark.parametrize("world", [1, 2, 5])
def test_all_are_connected_with_all(how: str, world: int, environment: int, tmp_path: Path) -> None:
    rendezvous: Any = {"env": "env://", "file": f"file://{tmp_path}/ranks", "function": all_gather(world)}[
        how
    ]
    with ThreadPoolExecutor(world) as pool:
        started = start(pool, world, list(range(world)), rendezvous)
        groups = [future.result(PATIENCE) for future in started]
    try:
        names = tuple(f"host-{rank}" for rank in range(world))
        for rank, group in enumerate(groups):
            assert group.names == names
            assert group.peer(rank) == group.agent.name
            assert set(group.agent.peers) == set(names) - {names[rank]}
        if world > 1:
            data, buffer = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
            receiving = groups[0].agent.post_receive(names[-1], buffer, tensor=1)
            groups[-1].agent.post_send(names[0], data, tensor=1).wait(PATIENCE)
            receiving.wait(PATIENCE)
            assert np.array_equal(data, buffer)
    finally:
        for group in groups:
            group.close()


def test_rank_and_world_come_from_the_environment(environment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with Group(None, None, "env://", config=TCP) as group:
        assert (group.rank, group.world, group.names) == (0, 1, ("host-0",))


@pytest.mark.parametrize("how", ["env", "file"])
def test_who_did_not_come_is_named(how: str, environment: int, tmp_path: Path) -> None:
    rendezvous = {"env": "env://", "file": f"file://{tmp_path}/ranks"}[how]
    for problem in problems(4, [0, 2], rendezvous, timeout_seconds=1.0):
        assert isinstance(problem, DeadlineExceededError)
        text = str(problem)
        assert "ranks that did not come: 1, 3" in text or text.endswith("does not say who is there")


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    [problem] = problems(2, [0], f"file://{tmp_path}/none/ranks")
    assert str(problem) == f"{tmp_path}/none/ranks: cannot be used: No such file or directory"
    (tmp_path / "picture").write_bytes(b"\xff\xfe")
    [problem] = problems(2, [0], f"file://{tmp_path}/picture")
    assert str(problem) == f"{tmp_path}/picture: cannot be used: is no text"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_port_that_is_none_is_named(rank: int, environment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "65535")
    [problem] = problems(2, [rank], "env://")
    assert str(problem) == "MASTER_PORT: is 65535 (expected 1 to 65534)"


def test_without_rank_0_nobody_meets(environment: int) -> None:
    [problem] = problems(2, [1], "env://", timeout_seconds=0.5)
    assert f"rank 0 at 127.0.0.1:{environment} does not say who" in str(problem)


def test_a_rank_that_met_and_left_is_named(tmp_path: Path) -> None:
    gone = f'{{"rank":1,"world":2,"name":"host-1","endpoint":"127.0.0.1:{free_port()}"}}'
    [problem] = problems(2, [0], lambda own: [own, gone], timeout_seconds=0.5)
    assert isinstance(problem, DeadlineExceededError)
    assert "ranks that did not come: 1 (peer host-1: cannot be reached" in str(problem)


def call(port: int) -> socket.socket:
    """Rank 0, as soon as it listens."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_strangers_at_the_rendezvous_do_no_harm(environment: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = start(pool, 2, [0], "env://")
        strangers = [call(environment) for _ in range(3)]
        strangers[0].sendall(b"GET / HTTP/1.1\n")
        strangers[1].sendall(b"x" * 100_000)
        groups = [future.result(PATIENCE) for future in first + start(pool, 2, [1], "env://")]
    for group in groups:
        group.close()
    for stranger in strangers:
        stranger.close()


def test_a_rank_that_is_started_twice_hears_so_at_once(environment: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        started = start(pool, 3, [0, 1, 1], "env://")
        done, others = wait(started, PATIENCE, FIRST_COMPLETED)
        [problem] = [future.exception() for future in done]
        assert isinstance(problem, UserInputError)
        assert str(problem) == "env://: rank 1 is there already, as host-1"
        started = [*others, *start(pool, 3, [2], "env://")]
        groups = [future.result(PATIENCE) for future in started]
    for group in groups:
        group.close()


def test_a_rank_whose_first_process_has_gone_may_come_again(environment: int) -> None:
    with ThreadPoolExecutor(3) as pool:
        first = start(pool, 3, [0], "env://")
        with call(environment) as gone:
            gone.sendall(b'{"rank":1,"world":3,"name":"gone","endpoint":"127.0.0.1:9"}\n')
            gone.shutdown(socket.SHUT_WR)
            assert gone.recv(1) == b""
        groups = [future.result(PATIENCE) for future in first + start(pool, 3, [1, 2], "env://")]
    for group in groups:
        assert group.names == ("host-0", "host-1", "host-2")
        group.close()


@pytest.mark.parametrize("how", ["env", "file"])
def test_who_counts_other_ranks_than_the_first_hears_so(how: str, environment: int, tmp_path: Path) -> None:
    rendezvous = {"env": "env://", "file": f"file://{tmp_path}/ranks"}[how]
    with ThreadPoolExecutor(2) as pool:
        first = start(pool, 2, [0], rendezvous)
        if how == "file":
            place = tmp_path / "ranks"
            eventually(lambda: place.exists() and "host-0" in place.read_text("utf-8"))
        [wrong] = start(pool, 6, [5], rendezvous)
        problem = wrong.exception(PATIENCE)
        assert isinstance(problem, UserInputError)
        assert "rank 5 is one of 6, rank 0 one of 2" in str(problem)
        groups = [future.result(PATIENCE) for future in first + start(pool, 2, [1], rendezvous)]
    for group in groups:
        group.close()


def test_a_file_serves_one_run(tmp_path: Path) -> None:
    rendezvous = f"file://{tmp_path}/ranks"
    Group(0, 1, rendezvous, config=TCP).close()
    with pytest.raises(UserInputError, match="rank 0 has been there already"):
        Group(0, 1, rendezvous, config=TCP)


def test_a_rank_that_is_started_again_finds_who_is_there(tmp_path: Path) -> None:
    rendezvous = f"file://{tmp_path}/ranks"
    assert not was_there(rendezvous, 1)
    with ThreadPoolExecutor(4) as pool:
        groups = [future.result(PATIENCE) for future in start(pool, 4, [0, 1, 2, 3], rendezvous)]
        assert was_there(rendezvous, 1)
        groups[3].close()
        groups[1].close()
        [back] = start(pool, 4, [1], rendezvous, returns=True, config=AgentConfig(name="x", transport="tcp"))
        with back.result(PATIENCE) as group:
            assert group.names == groups[0].names
            assert group.agent.name == groups[1].agent.name
            assert group.absent == {3}
            groups[0].agent.wait_for_peers([group.peer(1)], PATIENCE)
            [third] = start(pool, 4, [3], rendezvous, returns=True)  # by the new address of the other one
            with third.result(PATIENCE) as other:
                assert other.absent == frozenset()
                group.agent.send_message(other.peer(3), b"word")
                assert other.agent.receive_message(group.peer(1)) == b"word"
    for each in (groups[0], groups[2]):
        each.close()


def test_who_holds_the_former_connection_is_asked_until_it_is_free(tmp_path: Path) -> None:
    rendezvous = f"file://{tmp_path}/ranks"
    with ThreadPoolExecutor(3) as pool:
        first, former = (future.result(PATIENCE) for future in start(pool, 2, [0, 1], rendezvous))
        [back] = start(pool, 2, [1], rendezvous, returns=True)
        with pytest.raises(FutureTimeoutError):
            back.result(2.0)
        former.close()
        with back.result(PATIENCE) as group:
            assert group.absent == frozenset()
        first.close()


def test_a_second_process_of_a_rank_changes_nothing(tmp_path: Path) -> None:
    rendezvous = f"file://{tmp_path}/ranks"
    with ThreadPoolExecutor(3) as pool:
        groups = [future.result(PATIENCE) for future in start(pool, 2, [0, 1], rendezvous)]
        before = (tmp_path / "ranks").read_text()
        with pytest.raises(RanksMissingError):
            Group(1, 2, rendezvous, config=TCP, returns=True, timeout_seconds=2.5)
    assert (tmp_path / "ranks").read_text() == before
    for group in groups:
        group.close()


def test_nobody_is_there_who_could_take_a_rank_in(tmp_path: Path) -> None:
    rendezvous = f"file://{tmp_path}/ranks"
    with pytest.raises(UserInputError, match="rendezvous: keeps no ranks"):
        Group(0, 2, "env://", returns=True)
    with pytest.raises(UserInputError, match=f"{tmp_path}/ranks: has 0 of 2 ranks"):
        Group(0, 2, rendezvous, returns=True)
    with ThreadPoolExecutor(2) as pool:
        for future in start(pool, 2, [0, 1], rendezvous):
            future.result(PATIENCE).close()
    with pytest.raises(RanksMissingError, match="did not come: 0: nobody is there who could take this one"):
        Group(1, 2, rendezvous, returns=True)
    with pytest.raises(UserInputError, match=r"rank 1 is one of 3, rank \d one of 2"):
        Group(1, 3, rendezvous, returns=True)


def test_a_name_that_routes_name_stays() -> None:
    fields: dict[str, Any] = {"routes": {"h2": ((1, 2),)}, "interface": "lo", "gateway": "02:00:00:00:00:01"}
    for mode, name in (("alias", "h1-0"), ("p4", "h1")):
        config = AgentConfig(name="h1", transport="tcp", spraying=Spraying(mode=mode, **fields))
        with Group(0, 1, lambda own: [own], config=config) as group:
            assert group.names == (name,)


def test_names_must_differ() -> None:
    twin = '{"rank":1,"world":2,"name":"host-0","endpoint":"127.0.0.1:1"}'
    with pytest.raises(UserInputError, match="two ranks have one name"):
        Group(0, 2, lambda own: [own, twin], config=TCP)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((2, 2, "env://"), "rank: is 2 of 2"),
        ((None, 2, "env://"), "RANK: is not set"),
        ((0, 2, "tcp://x"), "rendezvous: 'tcp://x'"),
        ((0, 2, "env://"), "MASTER_ADDR: is not set"),
        ((0, 1, lambda _: ["nonsense"]), "'nonsense' is nothing that a rank says"),
    ],
)
def test_what_the_user_got_wrong(arguments: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserInputError, match=problem):
        Group(*arguments, config=TCP)


def test_a_rank_that_came_and_left_at_once_holds_nobody_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another one may look who is there only then; posts to the one that has left tell of it."""
    has_left = threading.Event()
    wait_for_peers = Agent.wait_for_peers

    def late(agent: Agent, names: set[str], seconds: float, **options: Any) -> None:
        if agent.name.endswith("1"):
            assert has_left.wait(PATIENCE)
            eventually(lambda: len(agent.peers) == 1)
        wait_for_peers(agent, names, seconds, **options)

    monkeypatch.setattr(Agent, "wait_for_peers", late)
    with ThreadPoolExecutor(3) as pool:
        groups = start(pool, 3, [0, 1, 2], f"file://{tmp_path}/meeting")
        groups[2].result(PATIENCE).agent.close()
        has_left.set()
        with groups[1].result(PATIENCE) as group, groups[0].result(PATIENCE):
            with pytest.raises(PeerUnreachableError, match="has left"):
                group.agent.post_send(group.peer(2), np.ones(9, np.float32), tensor=1)
            assert group.agent.peers == (group.peer(0),)
