"""What DDP and torch offer: it works under every synchronization, or is refused by name on all ranks."""

import copy
import io
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402  (torch may be missing)
from torch.nn.parallel.distributed import _MixedPrecision  # noqa: E402

from mltswitch.hostagent import AgentConfig  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from tests.training.pytorch.ranks import Ranks, flat, generator  # noqa: E402

pytestmark = pytest.mark.torch
dist, nn = torch.distributed, torch.nn
OSP: dict[str, Any] = {"synchronization": "osp", "settings": {"share": 0.6, "slice_bytes": 512}}
CARRY = {**OSP, "settings": {**OSP["settings"], "late": "carry"}}
POINTS: dict[str, dict[str, Any]] = {"bsp": {}, "osp": OSP, "asp": {"synchronization": "asp"}, "carry": CARRY}


def _model(kind: str = "") -> Any:
    torch.manual_seed(1)
    layers: list[Any] = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 40), nn.Linear(40, 5)]
    if kind == "batchnorm":
        layers.insert(1, nn.BatchNorm2d(8))
    model = nn.Sequential(*layers)
    if kind == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    if kind == "transposed":
        model[3].weight = nn.Parameter(model[3].weight.detach().t().contiguous().t())
    if kind == "slice":
        model[3].weight = nn.Parameter(torch.randn(40, 64)[:, ::2])
    if kind == "names":
        model = nn.ModuleDict({"first part": model[:3], "line\nend": model[3:]})
        model.forward = lambda x: model["line\nend"](model["first part"](x))
    return model


def _loss(model: Any, draw: Any) -> Any:
    inputs = torch.randn(8, 3, 4, 4, generator=draw)
    return nn.functional.cross_entropy(model(inputs), torch.randint(0, 5, (8,), generator=draw))


def _sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _train(
    options: dict[str, Any],
    kind: str = "",
    ddp: dict[str, Any] | None = None,
    clip: str = "",
    scale: float = 0.0,
    max_norm: float = 0.3,
) -> tuple[Any, list[float]]:
    """Drained parameters and norms; no options of a state: DDP's own sums."""
    module = _model(kind)
    is_alone = options.get("synchronization") == "asp"
    model = DistributedDataParallel(module, broadcast_buffers=not is_alone, **(ddp or {}))
    optimizer, draw, norms = _sgd(model), generator(dist.get_rank()), []
    state = MltState(model, optimizer=optimizer, piece_bytes=1024, **options) if options else None
    if state is not None:
        model.register_comm_hook(state, mlt_hook)
    scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=scale or 1.0, enabled=scale > 0)
    for _ in range(6):
        optimizer.zero_grad()
        scaler.scale(_loss(model, draw)).backward()
        scaler.unscale_(optimizer)
        if clip == "torch":
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), max_norm)))
        elif clip == "value":
            nn.utils.clip_grad_value_(model.parameters(), max_norm)
        elif clip and state is not None:
            norms.append(float(state.clip_grad_norm(max_norm)))
        scaler.step(optimizer)
        scaler.update()
    if state is not None:
        state.drain()
        state.close()
    return flat(module), norms


BSP: dict[str, Any] = {"synchronization": "bsp"}


@pytest.mark.parametrize(
    ("kind", "ddp"),
    [
        ("channels_last", {}),
        ("transposed", {}),
        ("slice", {}),
        ("names", {}),
        ("batchnorm", {}),
        ("", {"static_graph": True}),
        ("channels_last", {"gradient_as_bucket_view": True}),
        ("", {"find_unused_parameters": True}),
        ("", {"batched_grad_copy": True}),
    ],
    ids=str,
)
def test_what_ddp_offers_trains_as_ddp_itself(ranks: Ranks, tmp_path: Path, kind: str, ddp: Any) -> None:
    plain, _ = ranks.results(2, _train, {}, kind, ddp, store=tmp_path)
    ours, others = ranks.results(2, _train, BSP, kind, ddp, store=tmp_path)
    assert torch.equal(ours[0], others[0])
    assert torch.allclose(ours[0], plain[0], rtol=1e-5, atol=1e-6)
    if kind != "slice":
        ours, others = ranks.results(2, _train, OSP, kind, ddp, store=tmp_path)
        assert torch.equal(ours[0], others[0])
        assert not torch.equal(ours[0], plain[0])


def _first_answer(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:  # noqa: BLE001  (the test reads it)
        return f"{type(error).__name__}: {error}"
    return ""


def _unsupported(case: str, options: dict[str, Any]) -> str:
    module, ddp = _model("slice" if case == "slice" else ""), {}
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    if case == "ignored":
        ignore(module, ["3.weight", "4.bias"])
    if case == "delayed":
        ddp = {
            "delay_all_reduce_named_params": [("4.bias", module[4].bias)],
            "param_to_hook_all_reduce": module[3].weight,
        }
    if case == "mixed_precision":
        ddp = {"mixed_precision": _MixedPrecision(param_dtype=torch.bfloat16)}
    if case == "sparse":
        module.append(nn.Embedding(5, 4, sparse=True))
        module.append(nn.EmbeddingBag(5, 4, sparse=True))
    if case == "complex":
        module.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    if case == "inside":
        module[3].weight.register_post_accumulate_grad_hook(lambda each: None)
    if case == "skips":
        ddp = {"skip_all_reduce_unused_params": True, "find_unused_parameters": True}
    model = DistributedDataParallel(module, broadcast_buffers=False, **ddp)
    if case == "hooked":
        model.register_comm_hook(None, lambda state, bucket: None)
    parameters = [each for name, each in module.named_parameters() if case != "fewer" or name != "3.bias"]
    return _first_answer(lambda: MltState(model, optimizer=torch.optim.SGD(parameters, lr=0.1), **options))


@pytest.mark.parametrize(
    ("case", "point", "said"),
    [
        ("ignored", "bsp", ["3.weight: is ignored by DDP (_ddp_params", "4.bias: is ignored", "Freeze it"]),
        ("delayed", "bsp", ["4.bias", "delay_all_reduce_named_params"]),
        ("mixed_precision", "osp", ["mixed_precision", "autocast"]),
        ("sparse", "bsp", ["5.weight: has sparse", "6.weight: has sparse", "sparse=False"]),
        ("complex", "asp", ["phase: is torch.complex64"]),
        ("inside", "bsp", ["3.weight", "in the backward pass"]),
        ("skips", "bsp", ["skip_all_reduce_unused_params"]),
        ("hooked", "osp", ["has a communication hook", "no second one"]),
        ("slice", "osp", ["3.weight: is not contiguous in memory", ".contiguous()"]),
        ("fewer", "osp", ["3.bias: the optimizer lacks", "give the optimizer all"]),
    ],
)
def test_what_cannot_be_exchanged_is_named(
    ranks: Ranks, tmp_path: Path, case: str, point: str, said: list[str]
) -> None:
    for answer in ranks.results(2, _unsupported, case, POINTS[point], store=tmp_path):
        assert [each for each in said if each.lower() not in answer.lower()] == [], answer


def _set_since(options: dict[str, Any], case: str) -> str:
    """What two steps say where parameters are set behind the state's making."""
    torch.manual_seed(dist.get_rank())
    module = nn.Linear(4, 4)
    bare = MltState(module, optimizer=_sgd(module), **options) if case == "broadcast" else None
    model = DistributedDataParallel(module, broadcast_buffers=False)
    optimizer = bare._steps._replica.optimizer if bare and bare._steps else _sgd(model)
    state = bare or MltState(model, optimizer=optimizer, **options)
    model.register_comm_hook(state, mlt_hook)
    dist.barrier()

    def work() -> None:
        for step in range(2):
            if case == "loaded" or (case == "loaded late" and step == 1):
                model.load_state_dict({name: each + 1 for name, each in model.state_dict().items()})
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    said = _first_answer(work)
    state.close(said)
    return said


@pytest.mark.parametrize(
    ("point", "case", "said"),
    [
        ("asp", "loaded", "has other parameters than when the state was made"),
        ("asp", "broadcast", "has other parameters than when the state was made"),
        ("asp", "loaded late", "load_state_dict: comes too late"),
        ("bsp", "broadcast", ""),
        ("osp", "broadcast", ""),
        ("osp", "loaded late", ""),
    ],
)
def test_parameters_set_behind_the_state_are_trained_or_refused(
    ranks: Ranks, tmp_path: Path, point: str, case: str, said: str
) -> None:
    answers = ranks.results(2, _set_since, POINTS[point] or BSP, case, store=tmp_path)
    assert [bool(each) for each in answers] == [bool(said)] * 2, answers
    assert any(said in each for each in answers), answers  # the other one may wait in DDP's own broadcasts


class _Wraps(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch may be missing
    """Names that other modules use for what this one does not mean."""

    def __init__(self) -> None:
        super().__init__()
        self.module, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        self.sparse = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, inputs: Any) -> Any:
        return self.head(self.module(inputs)) * self.scale + self.sparse(inputs)


def _copied(options: dict[str, Any]) -> tuple[Any, Any]:
    """Of a model in the middle of its job: a copy, one from a file, and the parameters after the job."""
    torch.manual_seed(1)
    module = _Wraps()
    model = DistributedDataParallel(module)
    optimizer = _sgd(model)
    with MltState(module, optimizer=optimizer, **options) as state:
        model.register_comm_hook(state, mlt_hook)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 4) + dist.get_rank()).sum().backward()
            optimizer.step()
        state.drain()
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        loaded, copied = torch.load(file, weights_only=False), copy.deepcopy(module)
    for each in (loaded, copied):
        each.eval()
        each(torch.ones(2, 4))
    return flat(module), [flat(each) for each in (loaded, copied)]


@pytest.mark.parametrize("point", ["bsp", "osp"])
def test_a_model_in_a_job_is_copied_and_saved(ranks: Ranks, tmp_path: Path, point: str) -> None:
    first, second = ranks.results(2, _copied, POINTS[point] or BSP, store=tmp_path)
    for each in (*first[1], second[0], *second[1]):
        assert torch.equal(first[0], each)


def _patience(seconds: float) -> list[float]:
    """Of a process group: in the broadcast of buffers, behind it, and after the job."""
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=20))
    model = DistributedDataParallel(_model("batchnorm"), process_group=group)
    state = MltState(model, deadline_seconds=seconds)
    model.register_comm_hook(state, mlt_hook)
    found: list[float] = []

    def note(*_: Any) -> None:
        found.append(group._get_backend(torch.device("cpu")).options._timeout.total_seconds())

    model.register_forward_pre_hook(note)
    _loss(model, generator(dist.get_rank())).backward()
    note()
    state.close()
    note()
    return found


def test_a_process_group_is_less_patient_for_buffers_alone(ranks: Ranks, tmp_path: Path) -> None:
    for seconds, short in ((5.0, 5.0), (30.0, 20.0)):
        for found in ranks.results(2, _patience, seconds, store=tmp_path):
            assert found == [short, 20.0, 20.0]


def _alone(case: str) -> tuple[str, float]:
    """What ranks hear of which one differs, and how long that takes."""
    module = _model()
    if dist.get_rank() == 1:
        if case == "layers":
            module.add_module("extra", nn.Identity())
            module[4] = nn.Sequential(module[4])
        elif case == "dtype":
            module[4].double()
        elif case == "complex":
            module.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    here: Any = {"agent": AgentConfig(listen="192.0.2.1:0"), "type": 5}.get(case)
    config = here if dist.get_rank() == 1 else None
    begin = time.monotonic()
    said = _first_answer(lambda: MltState(module, config=config, timeout_seconds=20))
    return said, time.monotonic() - begin


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("layers", "rank 1: its model differs in parameter 4 of its layers: '4.0.weight' (5, 40)"),
        ("dtype", "rank 1: its model differs in parameter 4 of its layers: '4.weight' (5, 40) torch.float64"),
        ("complex", "phase: is torch.complex64"),
        ("agent", "line_rate: is missing. Beyond loopback"),
        ("type", "TypeError"),
    ],
)
def test_what_only_one_rank_has_all_hear_at_once(ranks: Ranks, tmp_path: Path, case: str, said: str) -> None:
    for answer, seconds in ranks.results(2, _alone, case, store=tmp_path):
        assert said in answer
        assert seconds < 10


@pytest.mark.parametrize("scale", [0.0, 1.0, 1024.0])
@pytest.mark.parametrize("point", ["bsp", "osp", "asp"])
def test_clipping_is_the_same_on_all_ranks(ranks: Ranks, tmp_path: Path, point: str, scale: float) -> None:
    if point == "asp" and scale > 1:
        pytest.skip("a push is not scaled")
    options = POINTS[point] or BSP
    ours, others = ranks.results(2, _train, options, "", None, "state", scale, store=tmp_path)
    assert torch.equal(ours[0], others[0])
    if point != "asp":
        assert ours[1] == others[1]
    assert min(ours[1]) > 0.3, "all are clipped"
    plain, _ = ranks.results(2, _train, {}, "", None, "torch", scale, store=tmp_path)
    if point == "bsp":
        assert torch.allclose(ours[0], plain[0], rtol=1e-5, atol=1e-6)
        assert ours[1] == pytest.approx(plain[1], rel=1e-5)
    unclipped, _ = ranks.results(2, _train, options, "", None, "", scale, store=tmp_path)
    start = flat(_model())
    assert (ours[0] - start).norm() < 0.7 * (unclipped[0] - start).norm()


def test_osp_that_clips_and_sums_all_at_once_is_bsp(ranks: Ranks, tmp_path: Path) -> None:
    options = {**OSP, "settings": {"share": 0.0}}
    osp, _ = ranks.results(2, _train, options, "", None, "state", 1024.0, store=tmp_path)
    bsp, _ = ranks.results(2, _train, BSP, "", None, "state", 1024.0, store=tmp_path)
    assert torch.equal(osp[0], bsp[0])
    assert osp[1] == bsp[1]


@pytest.mark.parametrize("clip", ["torch", "value"])
@pytest.mark.parametrize("point", ["osp", "asp"])
def test_torchs_own_clipping_is_found_out_in_the_first_step(
    ranks: Ranks, tmp_path: Path, point: str, clip: str
) -> None:
    """Also where the norm is below the most, so that gradients keep their bits."""
    for answer in ranks.results(2, _refused_clipping, POINTS[point], clip, store=tmp_path):
        assert "gradients have changed between backward" in answer
        assert "clip_grad_norm" in answer or "NodeLost" in answer


def _refused_clipping(options: dict[str, Any], clip: str) -> str:
    return _first_answer(lambda: _train(options, "", None, clip, 0.0, 1e9))


def _uneven(options: dict[str, Any], join: dict[str, Any], bare: bool) -> tuple[str, Any]:
    module = _model()
    model = DistributedDataParallel(module)
    optimizer, draw = torch.optim.SGD(model.parameters(), lr=0.1), generator(dist.get_rank())
    state = MltState(module if bare else model, optimizer=optimizer, check_every=1, **options)
    model.register_comm_hook(state, mlt_hook)
    dist.barrier()  # who fails while the other still starts ends its start

    def work() -> None:
        with model.join(**join):
            for _ in range(2 + 4 * dist.get_rank()):
                optimizer.zero_grad()
                _loss(model, draw).backward()
                optimizer.step()
        state.drain()

    said = _first_answer(work)
    state.close(said)
    return said, flat(module)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("point", "join", "said"),
    [
        ("bsp", {}, ""),
        ("osp", {}, "join()"),
        ("asp", {}, "join()"),
        ("bsp", {"divide_by_initial_world_size": False}, "join(divide_by_initial_world_size=False)"),
        ("osp", {"throw_on_early_termination": True}, "exhausted"),
    ],
)
def test_uneven_batches(
    ranks: Ranks, tmp_path: Path, point: str, join: dict[str, Any], said: str, bare: bool
) -> None:
    first, second = ranks.results(2, _uneven, POINTS[point], join, bare, store=tmp_path)
    for answer, _ in (first, second):
        assert said in answer
        assert bool(said) == bool(answer)
    if not said:
        assert torch.equal(first[1], second[1])


def _drifts(options: dict[str, Any], case: str) -> tuple[str, int]:
    module, step = _model(), 0
    if case == "start" and dist.get_rank() == 1:
        module[4].bias.data += 1
    model = DistributedDataParallel(module, init_sync=False)
    optimizer, draw = _sgd(model), generator(dist.get_rank())
    state = MltState(model, optimizer=optimizer, check_every=4, deadline_seconds=20, **options)
    model.register_comm_hook(state, mlt_hook)
    dist.barrier()

    def work() -> None:
        nonlocal step
        for step in range(12):
            optimizer.zero_grad()
            _loss(model, draw).backward()
            optimizer.step()
            if step == 5 and dist.get_rank() == 1:
                with torch.no_grad():
                    if case == "bit":
                        module[4].bias[2] += 1e-7
                    elif case == "lr":
                        optimizer.param_groups[0]["lr"] = 0.2
            if step == 5 and case == "grown":
                module.append(nn.Linear(5, 5))

    said = _first_answer(work)
    state.close(said)
    return said, step


@pytest.mark.parametrize("point", ["bsp", "osp", "carry"])
@pytest.mark.parametrize(
    ("case", "said", "last"),
    [
        ("", "", 11),
        ("start", "rank 1: has other parameters in step 0 than rank 0", 0),
        ("bit", "rank 1: has other parameters in step 8 than rank 0", 8),
        ("lr", "rank 1: has other parameters in step 8 than rank 0", 8),
        ("grown", "5.weight, 5.bias: trains, and did not when the state was made", 6),
    ],
)
def test_ranks_that_differ_are_named(
    ranks: Ranks, tmp_path: Path, point: str, case: str, said: str, last: int
) -> None:
    for answer, step in ranks.results(2, _drifts, POINTS[point], case, store=tmp_path):
        assert said in answer, answer
        assert bool(said) == bool(answer)
        # Whoever is slower may hear of it while it still corrects the step before.
        assert last - (case == "grown") <= step <= last
