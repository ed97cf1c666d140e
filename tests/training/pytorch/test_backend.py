"""Process groups of the backend `mlt`: ranks are processes on loopback, and gloo is the reference."""

import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402  (torch may be missing)
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from mltswitch.errors import UserInputError  # noqa: E402
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError  # noqa: E402
from mltswitch.training.pytorch import MltOptions  # noqa: E402
from mltswitch.training.pytorch.collectives import add_up, host  # noqa: E402
from tests.hostagent.ends import losing  # noqa: E402

pytestmark = pytest.mark.torch
PATIENCE = timedelta(seconds=30)
Work = Callable[..., Any]


# Processes that wait for work


class Ranks:
    """Processes, each a rank of one job after another."""

    def __init__(self, count: int) -> None:
        context = mp.get_context("spawn")
        self.processes = []
        self.pipes: list[Connection] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self.processes.append(process)
            self.pipes.append(ours)

    def run(self, world: int, work: Work, *args: Any, store: Path, **options: Any) -> list[Any]:
        """What a function answers at each rank: its result, or an exception's type and text."""
        for rank, pipe in enumerate(self.pipes[:world]):
            pipe.send((rank, world, work, args, store / "store", options))
        return [self._answer(pipe) for pipe in self.pipes[:world]]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def _answer(self, pipe: Connection) -> Any:
        assert pipe.poll(60), "no answer"
        try:
            return pipe.recv()
        except EOFError:
            return None


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        rank, world, work, args, store, options = pipe.recv()
        try:
            options = {"rank": rank, "world": world, "timeout": PATIENCE} | options
            pipe.send(_member(work, args, dist.FileStore(str(store), options["world"]), options))
        except Exception as error:  # noqa: BLE001  (the test says what it expects)
            pipe.send((type(error), str(error)))


def _member(work: Work, args: Any, store: Any, options: dict[str, Any]) -> Any:
    rank, world = options.pop("rank"), options.pop("world")
    dist.init_process_group("mlt", store=store, rank=rank, world_size=world, **options)
    try:
        return work(*args)
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    found = Ranks(3)
    yield found
    found.close()


# Every collective, element type and shape against gloo


def _values(seed: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Small whole numbers, which every type holds."""
    return torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _broadcast(own: Any, group: Any, world: int) -> Any:
    dist.broadcast(own, world - 1, group=group)
    return own


def _all_gather(own: Any, group: Any, world: int) -> Any:
    found = [torch.zeros_like(own) for _ in range(world)]
    dist.all_gather(found, own, group=group)
    return torch.stack(found)


def _all_gather_single(own: Any, group: Any, world: int) -> Any:
    found = torch.zeros(world * own.numel(), dtype=own.dtype)
    dist.all_gather_into_tensor(found, own.contiguous(), group=group)
    return found


def _gather(own: Any, group: Any, world: int) -> Any:
    is_root = dist.get_rank() == 1
    found = [torch.zeros_like(own) for _ in range(world)]
    dist.gather(own, found if is_root else None, 1, group=group)
    return torch.stack(found)


def _scatter(own: Any, group: Any, world: int) -> Any:
    parts = [own.clone() if rank % 2 else torch.zeros_like(own) for rank in range(world)]
    parts = parts if dist.get_rank() == 0 else None
    dist.scatter(own, parts, 0, group=group)
    return own


def _all_to_all(own: Any, group: Any, world: int) -> Any:
    found = [torch.zeros_like(own) for _ in range(world)]
    dist.all_to_all(found, [own.clone() for _ in range(world)], group=group)
    return torch.stack(found)


def _all_to_all_single(own: Any, group: Any, world: int) -> Any:
    """Rank r sends s + 1 rows to rank s."""
    sizes, rank = list(range(1, world + 1)), dist.get_rank()
    found = torch.zeros((world * (rank + 1), own.numel()), dtype=own.dtype)
    rows = own.reshape(1, -1).repeat(sum(sizes), 1)
    dist.all_to_all_single(found, rows, [rank + 1] * world, sizes, group=group)
    return found


def _ring(own: Any, group: Any, world: int) -> Any:
    found, rank = torch.zeros_like(own), dist.get_rank()
    receive = dist.P2POp(dist.irecv, found, (rank - 1) % world, group, tag=7)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, own, (rank + 1) % world, group, 7), receive]):
        work.wait()
    return found


def _all_reduce(own: Any, group: Any, world: int, op: Any) -> Any:
    dist.all_reduce(own, op, group=group)
    return own


def _reduce(own: Any, group: Any, world: int, op: Any) -> Any:
    kept = own.clone()
    dist.reduce(own, 1, op, group=group)
    return own if dist.get_rank() == 1 else kept


def _reduce_scatter(own: Any, group: Any, world: int, op: Any) -> Any:
    found = torch.zeros_like(own)
    dist.reduce_scatter(found, [own.clone() for _ in range(world)], op, group=group)
    return found


def _reduce_scatter_single(own: Any, group: Any, world: int, op: Any) -> Any:
    found = torch.zeros(own.numel(), dtype=own.dtype)
    dist.reduce_scatter_tensor(found, own.reshape(-1).repeat(world), op, group=group)
    return found


def _coalesced(own: Any, group: Any, world: int, op: Any) -> Any:
    tensors = [own, own.flatten()[:3].clone(), own.clone()]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, op, group=group)
    manager.wait()
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


MOVES = [
    _broadcast, _all_gather, _all_gather_single, _gather, _scatter, _all_to_all, _all_to_all_single, _ring,
]  # fmt: skip
REDUCTIONS = [_all_reduce, _reduce, _reduce_scatter, _reduce_scatter_single, _coalesced]
SHAPES: list[tuple[int, ...]] = [(0,), (1,), (5, 3), (4001,), (130, 41)]
WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16, torch.uint32]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128]


def _inputs(dtype: Any) -> Iterator[Any]:
    for number, shape in enumerate(SHAPES):
        yield _values(dist.get_rank() * 100 + number, shape, dtype)
    yield _values(dist.get_rank(), (60, 50), dtype).t()  # not contiguous


def _moved(move: Work) -> list[str]:
    """Where the bytes are others than gloo's."""
    world, wrong = dist.get_world_size(), []
    reference = dist.new_group(backend="gloo")
    for dtype in [*WHOLE, *FLOATS, *COMPLEX]:
        for own in _inputs(dtype):
            found = move(own.clone(memory_format=torch.preserve_format), dist.group.WORLD, world)
            if own.numel():
                expected = move(_bytes(own).clone(), reference, world)
                if not torch.equal(_bytes(found), expected.flatten()):
                    wrong.append(f"{dtype} {tuple(own.shape)}")
    return wrong


def _bytes(tensor: Any) -> Any:
    return tensor.contiguous().flatten().view(torch.uint8)


def _reduced(reduction: Work) -> list[str]:
    """Where sums are others than gloo's in a type that holds them all."""
    world, wrong = dist.get_world_size(), []
    reference = dist.new_group(backend="gloo")
    cases = [(dtype, "SUM", own) for dtype in [*WHOLE, *FLOATS, *COMPLEX] for own in _inputs(dtype)]
    for dtype in (torch.int64, torch.uint8, torch.bfloat16, torch.float32):
        own = _values(dist.get_rank(), (4001,), dtype)
        cases += [(dtype, kind, own) for kind in ("AVG", "PRODUCT", "MIN", "MAX")]
    for dtype, kind, own in cases:
        found = reduction(own.clone(memory_format=torch.preserve_format), dist.group.WORLD, world, _op(kind))
        if own.numel():
            wide = torch.float64 if dtype in [*FLOATS, *COMPLEX] else torch.int64  # imaginary parts are 0
            other = _op("SUM" if kind == "AVG" else kind)
            whole = (own.real if dtype in COMPLEX else own).to(wide, copy=True).contiguous()
            expected = reduction(whole, reference, world, other)
            if kind == "AVG" and not (reduction is _reduce and dist.get_rank() != 1):
                expected = torch.div(expected, world, rounding_mode="trunc" if wide is torch.int64 else None)
            if not torch.allclose(found.to(torch.complex128), expected.to(dtype).to(torch.complex128)):
                wrong.append(f"{kind} {dtype} {tuple(own.shape)}")
    return wrong


def _op(name: str) -> Any:
    return getattr(dist.ReduceOp, name)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("move", MOVES)
def test_tensors_of_all_types_and_shapes_arrive_as_over_gloo(
    ranks: Ranks, tmp_path: Path, world: int, move: Work
) -> None:
    assert ranks.run(world, _moved, move, store=tmp_path) == [[]] * world


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_of_all_types_and_shapes_are_as_over_gloo(
    ranks: Ranks, tmp_path: Path, world: int, reduction: Work
) -> None:
    assert ranks.run(world, _reduced, reduction, store=tmp_path) == [[]] * world


def test_short_floats_are_added_in_float32_and_rounded_once() -> None:
    addends = [torch.tensor([value], dtype=torch.bfloat16) for value in (256.0, 1.0, 1.0)]
    add_up(addends, addends[2], "SUM")
    assert addends[2].item() == 258.0  # step by step 256 + 1 is 256


def test_memory_that_lies_as_it_travels_is_not_copied() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert host(tensor).data_ptr() == tensor.data_ptr()
    assert host(tensor.t()).tolist() == [0, 3, 1, 4, 2, 5]


# Groups, order, threads


def _groups() -> Any:
    """Two overlapping groups, many collectives open at once, and more from another thread."""
    rank = dist.get_rank()
    first, second, lone = dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([rank])
    tensors = [torch.full((30_000,), float(rank + number)) for number in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    mine = [group for group, members in ((first, (0, 1)), (second, (1, 2))) if rank in members]
    own = [torch.full((10_000,), float(rank)) for _ in mine]
    works += [dist.all_reduce(each, group=group, async_op=True) for each, group in zip(own, mine, strict=True)]
    alone = torch.ones(3)
    works.append(dist.all_reduce(alone, group=lone, async_op=True))
    doubled = works[0].get_future().then(lambda future: future.value()[0] * 2).wait()
    for work in reversed(works):
        work.wait()
    objects: list[Any] = [None] * 3
    dist.all_gather_object(objects, {"rank": rank})
    for group in mine:
        dist.destroy_process_group(group)
    dist.barrier()
    sums = [float(tensor.unique()) for tensor in (*tensors, *own)]
    return [sums, float(doubled[0]), float(alone[0]), [each["rank"] for each in objects]]


def test_many_collectives_of_several_groups_at_once(ranks: Ranks, tmp_path: Path) -> None:
    of_all = [3.0 + 3 * number for number in range(20)]
    own = [[1.0], [1.0, 3.0], [3.0]]
    assert ranks.run(3, _groups, store=tmp_path) == [
        [of_all + sums, 6.0, 1.0, [0, 1, 2]] for sums in own
    ]


def _large() -> Any:
    tensor = torch.arange(6_000_000, dtype=torch.float32) + dist.get_rank()
    dist.all_reduce(tensor)
    return torch.equal(tensor, 2 * torch.arange(6_000_000, dtype=torch.float32) + 1)


@pytest.mark.parametrize("transport", ["mlt", "tcp"])
def test_large_tensors_are_added_in_pieces(ranks: Ranks, tmp_path: Path, transport: str) -> None:
    options = MltOptions(transport=transport)
    assert ranks.run(2, _large, store=tmp_path, pg_options=options) == [True, True]


# Training


def _model() -> Any:
    torch.manual_seed(1)
    layers = [torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300), torch.nn.Linear(300, 4)]
    return torch.nn.Sequential(*layers)


def _trained(wrap: str, group: Any, steps: int = 4) -> list[Any]:
    """The whole model's parameters after some steps on this rank's own data."""
    model: Any = _model()
    if wrap == "ddp":
        model = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.2)
    elif wrap == "fsdp1":
        model = FullyShardedDataParallel(model, process_group=group, device_id=torch.device("cpu"))
    else:
        mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    draw = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 20, generator=draw)).square().mean().backward()
        optimizer.step()
    if wrap == "fsdp1":
        with FullyShardedDataParallel.summon_full_params(model):
            return [parameter.detach().clone() for parameter in model.parameters()]
    found = [parameter.full_tensor() if wrap == "fsdp2" else parameter for parameter in model.parameters()]
    return [parameter.detach().clone() for parameter in found]


def _trained_alike(wrap: str) -> tuple[bool, Any]:
    """Whether the parameters have the bits that gloo's have, and the largest difference."""
    reference = dist.new_group(backend="gloo")
    pairs = list(zip(_trained(wrap, dist.group.WORLD), _trained(wrap, reference), strict=True))
    return all(torch.equal(*pair) for pair in pairs), max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("wrap", ["ddp", "fsdp1", "fsdp2"])
def test_models_train_as_over_gloo(ranks: Ranks, tmp_path: Path, wrap: str, world: int) -> None:
    for same_bits, difference in ranks.run(world, _trained_alike, wrap, store=tmp_path):
        assert difference < 1e-6
        assert same_bits or world > 2  # a sum of two has one order


def _trained_with_loss(wrap: str) -> list[Any]:
    agent = dist.group.WORLD._family._agents.agent
    with losing(agent, 0.05):
        found = _trained(wrap, dist.group.WORLD, steps=6)
        ended = agent.snapshot().ended
    return [*found, str(ended)]


@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_parameters_are_equal_bit_for_bit_where_gradients_were_lost(
    ranks: Ranks, tmp_path: Path, wrap: str
) -> None:
    config = {"mtu_bytes": 1500, "burst_packets": 1, "listen": "127.0.0.1:0"}
    options = MltOptions(loss_bound=0.2, least_lossy_bytes=0, config=_config(tmp_path, config))
    first, second = ranks.run(2, _trained_with_loss, wrap, store=tmp_path, pg_options=options)
    assert all(torch.equal(*pair) for pair in zip(first[:-1], second[:-1], strict=True))
    (whole,) = ranks.run(1, _trained, wrap, None, store=tmp_path / "whole")[:1]
    print(first[-1])


def _config(folder: Path, fields: dict[str, Any]) -> str:
    path = folder / "agent.yaml"
    path.write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    return str(path)
