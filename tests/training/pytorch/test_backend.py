"""Process groups of the backend `mlt`: ranks are processes on loopback, and gloo is the reference."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: E402  (torch may be missing)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from mltswitch.errors import UserInputError  # noqa: E402
from mltswitch.hostagent.telemetry.events import TransferEnded  # noqa: E402
from mltswitch.training.errors import TrainingError  # noqa: E402
from mltswitch.training.pytorch import MltOptions  # noqa: E402
from mltswitch.training.pytorch.collectives import add_up, host  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from tests.hostagent.ends import Notes, losing  # noqa: E402
from tests.training.pytorch.ranks import Ranks, Work, generator, jobs_of  # noqa: E402

pytestmark = pytest.mark.torch
dist = torch.distributed
LIVING = 3


# Every collective, element type and shape against gloo


def _values(seed: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Small whole numbers, which every type holds."""
    return torch.randint(0, 3, shape, generator=generator(seed)).to(dtype)


def _broadcast(own: Any, group: Any, world: int) -> Any:
    dist.broadcast(own, world - 1, group=group)
    return own


def _all_gather(own: Any, group: Any, world: int) -> Any:
    found = [torch.zeros_like(own) for _ in range(world)]
    dist.all_gather(found, own, group=group)
    return torch.stack(found)


def _all_gather_single(own: Any, group: Any, world: int) -> Any:
    found = own.new_zeros(world * own.numel())
    dist.all_gather_into_tensor(found, own.contiguous(), group=group)
    return found


def _gather(own: Any, group: Any, world: int) -> Any:
    is_root = dist.get_rank() == 1
    found = [torch.zeros_like(own) for _ in range(world)]
    dist.gather(own, found if is_root else None, 1, group=group)
    return torch.stack(found)


def _scatter(own: Any, group: Any, world: int) -> Any:
    parts = [own.clone() if rank % 2 else torch.zeros_like(own) for rank in range(world)]
    dist.scatter(own, parts if dist.get_rank() == 0 else None, 0, group=group)
    return own


def _all_to_all(own: Any, group: Any, world: int) -> Any:
    found = [torch.zeros_like(own) for _ in range(world)]
    dist.all_to_all(found, [own.clone() for _ in range(world)], group=group)
    return torch.stack(found)


def _all_to_all_single(own: Any, group: Any, world: int) -> Any:
    """Rank r sends s + 1 rows to rank s."""
    sizes, rank = list(range(1, world + 1)), dist.get_rank()
    found = own.new_zeros((world * (rank + 1), own.numel()))
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
    found = own.new_zeros(own.numel())
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
WHOLE = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.uint16,
    torch.uint32,
]
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
    for dtype in [torch.bool, torch.uint16, torch.int64, torch.bfloat16, torch.float32, torch.complex128]:
        for own in _inputs(dtype):
            found = move(own.clone(memory_format=torch.preserve_format), dist.group.WORLD, world)
            if own.numel():
                other = (
                    _all_gather if move is _all_to_all else move
                )  # the same, and some gloos lack the latter
                expected = other(_bytes(own).cpu().clone(), reference, world)
                if not torch.equal(_bytes(found).cpu(), expected.flatten()):
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
            whole = (own.real if dtype in COMPLEX else own).to("cpu", wide, copy=True).contiguous()
            expected = reduction(whole, reference, world, other)
            if kind == "AVG" and not (reduction is _reduce and dist.get_rank() != 1):
                expected = torch.div(expected, world, rounding_mode="trunc" if wide is torch.int64 else None)
            if not torch.allclose(found.to("cpu", torch.complex128), expected.to(dtype).to(torch.complex128)):
                wrong.append(f"{kind} {dtype} {tuple(own.shape)}")
    return wrong


def _op(name: str) -> Any:
    return getattr(dist.ReduceOp, name)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("move", MOVES)
def test_tensors_of_all_types_and_shapes_arrive_as_over_gloo(
    ranks: Ranks, tmp_path: Path, world: int, move: Work
) -> None:
    assert ranks.results(world, _moved, move, store=tmp_path) == [[]] * world


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_of_all_types_and_shapes_are_as_over_gloo(
    ranks: Ranks, tmp_path: Path, world: int, reduction: Work
) -> None:
    assert ranks.results(world, _reduced, reduction, store=tmp_path) == [[]] * world


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
    works += [
        dist.all_reduce(each, group=group, async_op=True) for each, group in zip(own, mine, strict=True)
    ]
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
    assert ranks.results(3, _groups, store=tmp_path) == [[of_all + sums, 6.0, 1.0, [0, 1, 2]] for sums in own]


def _large() -> Any:
    tensor = torch.arange(6_000_000, dtype=torch.float32) + dist.get_rank()
    dist.all_reduce(tensor)
    return torch.equal(tensor, 2 * torch.arange(6_000_000, dtype=torch.float32) + 1)


@pytest.mark.parametrize("transport", ["mlt", "tcp"])
def test_large_tensors_are_added_in_pieces(ranks: Ranks, tmp_path: Path, transport: str) -> None:
    options = MltOptions(transport=transport)
    assert ranks.results(2, _large, store=tmp_path, pg_options=options) == [True, True]


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
        model = FullyShardedDataParallel(model, process_group=group, device_id=torch.get_default_device())
    else:
        mesh = dist.device_mesh.DeviceMesh.from_group(group, torch.get_default_device().type)
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    draw = generator(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 20, generator=draw)).square().mean().backward()
        optimizer.step()
    if wrap == "fsdp1":
        with FullyShardedDataParallel.summon_full_params(model):
            return [parameter.detach().cpu().clone() for parameter in model.parameters()]
    found = [parameter.full_tensor() if wrap == "fsdp2" else parameter for parameter in model.parameters()]
    return [parameter.detach().cpu().clone() for parameter in found]


def _trained_alike(wrap: str) -> tuple[bool, Any]:
    """Whether the parameters have the bits that gloo's have, and the largest difference."""
    reference = dist.new_group(backend="gloo")
    pairs = list(zip(_trained(wrap, dist.group.WORLD), _trained(wrap, reference), strict=True))
    return all(torch.equal(*pair) for pair in pairs), max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("wrap", ["ddp", "fsdp1", "fsdp2"])
def test_models_train_as_over_gloo(ranks: Ranks, tmp_path: Path, wrap: str, world: int) -> None:
    for same_bits, difference in ranks.results(world, _trained_alike, wrap, store=tmp_path):
        assert difference < 1e-6
        assert same_bits or world > 2  # a sum of two has one order


def _trained_with_loss(wrap: str) -> tuple[list[Any], float, float]:
    """Parameters, and the largest share that was missing of an addend and of anything else."""
    group, notes = dist.group.WORLD, Notes()
    group._family._agents.agent.observe(notes)
    with losing(group._family._agents.agent, 0.1):
        found = _trained(wrap, group, steps=6)
    ended = [event for event in notes.of(TransferEnded) if event.direction == "receive"]
    lost = [event.statistics.missing_share for event in ended]
    return found, max(lost), len([share for share in lost if share]) / len(lost)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_parameters_are_equal_bit_for_bit_where_gradients_were_lost(
    ranks: Ranks, tmp_path: Path, wrap: str
) -> None:
    (tmp_path / "agent.yaml").write_text(
        "{mtu_bytes: 1500, burst_packets: 1, listen: '127.0.0.1:0', defaults: {important_loss_bound: 0.2}}"
    )
    options = MltOptions(loss_bound=0.2, least_lossy_bytes=0, config=str(tmp_path / "agent.yaml"))
    first, second = ranks.results(2, _trained_with_loss, wrap, store=tmp_path, pg_options=options)
    assert all(torch.equal(*pair) for pair in zip(first[0], second[0], strict=True))
    assert max(first[1], second[1]) > 0
    for _, most, transfers in (first, second):
        assert most <= 0.2
        assert transfers <= 0.5  # results and parameters are whole


# What goes wrong


def _caught(work: Work) -> tuple[str, str, float]:
    began = time.monotonic()
    with pytest.raises(TrainingError) as caught:
        work()
    return type(caught.value).__name__, str(caught.value), time.monotonic() - began


def _killed() -> Any:
    tensor = torch.ones(4_000_000)
    dist.all_reduce(tensor)
    work = dist.all_reduce(tensor, async_op=True)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)

    def wait() -> None:
        work.wait()
        dist.all_reduce(tensor)

    first, again = _caught(wait), _caught(dist.barrier)
    return [first, again]


def test_a_killed_rank_is_named_by_all_others(ranks: Ranks, tmp_path: Path) -> None:
    first, killed, third = ranks.results(3, _killed, store=tmp_path)
    ranks.start(1)
    assert killed is None
    for kind, text, seconds in (*first, *third):
        assert kind == "NodeLostError"
        assert "rank 1" in text
        assert seconds < 15


def _dies_in_a_part() -> str:
    group = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        return ""
    model = DistributedDataParallel(_model(), process_group=group)
    with MltState(model, process_group=group, deadline_seconds=10) as state:
        model.register_comm_hook(state, mlt_hook)
        for step in range(9):
            if step == 3 and dist.get_rank() == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                model(torch.ones(4, 20)).sum().backward()
            except (RuntimeError, TrainingError):
                break
        return f"{type(state.error).__name__}: {state.error}"


def test_ranks_of_a_part_have_the_numbers_of_the_whole(ranks: Ranks, tmp_path: Path) -> None:
    answers = ranks.run(_dies_in_a_part, store=tmp_path, jobs=jobs_of(3))
    ranks.start(2)
    assert str(answers[1]).startswith("NodeLostError: rank 2: "), answers


def _leaves_at_once() -> float:
    store, rank = dist.distributed_c10d._get_default_store(), dist.get_rank()
    if rank > 0:
        store.wait(["left"])
    group = dist.new_group([0, 1, 2], pg_options=MltOptions(transport="tcp"))  # a channel that is new
    if rank == 0:
        store.set("left", "")
        return 2.0
    part = dist.new_group([1, 2], pg_options=MltOptions(transport="tcp"))
    own = torch.ones(1)
    dist.all_reduce(own, group=part)
    del group
    return float(own)


def test_a_rank_that_needs_nothing_of_a_group_may_leave_before_others_join(
    ranks: Ranks, tmp_path: Path
) -> None:
    assert ranks.results(3, _leaves_at_once, store=tmp_path) == [2.0, 2.0, 2.0]


def _mismatched(case: str) -> tuple[str, str, float]:
    rank, tensor = dist.get_rank(), torch.ones(30_000)
    if case == "sizes":
        return _caught(lambda: dist.all_reduce(tensor[rank:]))
    if case == "parts":
        sizes = [20_000, 10_000]
        return _caught(lambda: dist.all_to_all_single(tensor.clone(), tensor, sizes, sizes))
    if case == "types":
        return _caught(lambda: dist.broadcast(tensor.to([torch.int32, torch.float32][rank]), 0))
    return _caught(lambda: dist.barrier() if rank else dist.all_reduce(tensor))


@pytest.mark.parametrize("case", ["sizes", "parts", "types", "collectives"])
def test_ranks_that_do_different_things_name_each_other(ranks: Ranks, tmp_path: Path, case: str) -> None:
    found = ranks.results(2, _mismatched, case, store=tmp_path)
    kinds = [kind for kind, _, _ in found]
    assert "JobMismatchError" in kinds
    assert set(kinds) <= {"JobMismatchError", "NodeLostError"}  # who is told by the other one
    for rank, (_, text, seconds) in enumerate(found):
        assert f"rank {1 - rank}: " in text
        assert seconds < 15


def _late() -> Any:
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["over"])
        return _caught(dist.barrier)
    work = dist.barrier(async_op=True)
    slow = _caught(lambda: work.wait(timedelta(milliseconds=20)))
    late = _caught(work.wait)
    store.set("over", "")
    return slow, late, work.is_completed()


def test_a_late_rank_is_named_at_the_timeout(ranks: Ranks, tmp_path: Path) -> None:
    (slow, late, is_over), told = ranks.results(2, _late, store=tmp_path, timeout=timedelta(seconds=2))
    assert slow[0] == late[0] == "NodeLateError"
    assert slow[2] < 1.5 < late[2] < 10
    assert late[1].startswith("rank 1: not over after 2 s: barrier float32, number 0: ")
    assert is_over
    assert told[0] in {"NodeLostError", "NodeLateError"}  # told by the other one, or late by its own clock
    assert "not over after 2 s" in told[1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([{}, {"rank": 0}], ["rank 0: has come twice", "ranks that did not come: 1"]),
        ([{}, {"world_size": 3}], ["rank 1: has world 3", "rank 0: has world 2"]),
        (
            [{}, {"pg_options": MltOptions(loss_bound=0.1)}],
            ["rank 1: has world 2, MltOptions(loss_bound=0.1"],
        ),
        ([{}], ["ranks that did not come: 1"]),
    ],
)
def test_ranks_that_do_not_fit_do_not_start(
    ranks: Ranks, tmp_path: Path, changes: list[dict[str, Any]], expected: list[str]
) -> None:
    jobs = [
        job | change for job, change in zip(jobs_of(2, timeout=timedelta(seconds=3)), changes, strict=False)
    ]
    found = ranks.run(_large, store=tmp_path, jobs=jobs)
    assert all(isinstance(each, RuntimeError) for each in found), found
    for text in expected:
        assert any(text in str(each) for each in found), found


def _refused() -> list[str]:
    cases: list[Work] = [
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.uint64)),
        lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND),
        lambda: dist.all_reduce(torch.ones(3).to_sparse()),
        lambda: dist.recv(torch.ones(3)),
        lambda: dist.isend(torch.ones(3), 1, tag=1 << 30),
        lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(7)),
        lambda: dist.new_group(pg_options={"loss_bound": 0.1}),
    ]
    texts = []
    for case in cases:
        with pytest.raises(UserInputError) as caught:
            case()
        texts.append(str(caught.value))
    dist.barrier()  # nothing has been posted
    return texts


def test_what_cannot_be_is_refused_at_the_call(ranks: Ranks, tmp_path: Path) -> None:
    first, second = ranks.results(2, _refused, store=tmp_path)
    assert first == second
    of = " (expected one of SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, of a type that has it)"
    assert first[:2] == [f"reduction: SUM of torch.uint64{of}", f"reduction: BAND of torch.float32{of}"]


@pytest.mark.parametrize("options", [{"loss_bound": 1.0}, {"loss_bound": -0.1}, {"deadline_seconds": 0.0}])
def test_options_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UserInputError):
        MltOptions(**options)  # type: ignore[arg-type]  # so says the test


SCRIPT = """
import torch, torch.distributed as dist
import mltswitch.training.pytorch
dist.init_process_group("mlt")
tensor = torch.full((100_000,), dist.get_rank() + 1.0)
dist.all_reduce(tensor)
options = dist.group.WORLD.options
print(f"{options.loss_bound} {options.transport} {tensor.unique().tolist()}\\n", end="")
"""


def test_torchrun_starts_a_job_with_options_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    variables = {"MLTSWITCH_LOSS_BOUND": "0.25", "MLTSWITCH_TRANSPORT": "tcp", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "job.py"],
        env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout == 2 * "0.25 tcp [3.0]\n"


_FAILS = """
import sys, torch, torch.distributed as dist
rank = int(sys.argv[2])
dist.init_process_group("mlt", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=3)
if rank == 2:
    raise ValueError("no such batch")
try:
    dist.all_reduce(torch.ones(10))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_rank_that_ends_by_an_exception_tells_all_its_text(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FAILS, str(tmp_path / "store")]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=150)[0].strip() for rank in ranks]
    assert said == ["NodeLostError rank 2: ValueError: no such batch"] * 2 + [""]
