"""Synchronizations around a real optimizer, over real agents; ranks are processes."""

import copy
import json
from collections.abc import Callable
from contextlib import nullcontext
from math import isnan
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402  (torch may be missing)

from mltswitch.errors import MltswitchError  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from tests.training.pytorch.ranks import Ranks, flat, generator  # noqa: E402

pytestmark = pytest.mark.torch
dist = torch.distributed
STEPS = 8
PIECE_BYTES = 2048


def model_of(dtype: Any = None) -> Any:
    torch.manual_seed(1)
    nn = torch.nn
    layers = (
        nn.Linear(32, 64),
        nn.ReLU(),
        nn.BatchNorm1d(64),
        nn.Linear(64, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )
    return nn.Sequential(*layers).to(dtype or torch.float32)


def loss_of(model: Any, draw: Any) -> Any:
    inputs = torch.randn(16, 32, generator=draw)
    labels = torch.randint(0, 10, (16,), generator=draw)
    return torch.nn.functional.cross_entropy(model(inputs), labels)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
}


def train(
    options: dict[str, Any], optimizer_name: str = "momentum", steps: int = STEPS, kind: str = "plain"
) -> dict[str, Any]:
    """Drained parameters after each step, and the share that is later in the last one."""
    module = model_of()
    is_alone = options.get("synchronization") in {"asp", "ssp", "r2sp"}
    model = DistributedDataParallel(module, bucket_cap_mb=0.01, broadcast_buffers=not is_alone)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2, enabled=kind == "amp")
    draw, skipped = generator(dist.get_rank()), 0
    drains, saves, saved = (options.pop(name, None) for name in ("drains", "saves", "saved"))
    first = 0
    found, checkpoint = [], None
    if saved is not None:
        first, states = copy.deepcopy(saved)  # pipes share the memory of tensors
        module.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])
        draw.set_state(states[3][dist.get_rank()])
    with MltState(model, optimizer=optimizer, piece_bytes=PIECE_BYTES, **options) as state:
        model.register_comm_hook(state, mlt_hook)
        if saved is not None:
            state.load_state_dict(json.loads(states[2][dist.get_rank()]))
        for step in range(first, steps):
            optimizer.zero_grad()
            for is_last in (False, True) if kind == "accumulation" else (True,):
                with nullcontext() if is_last else model.no_sync():
                    loss = loss_of(model, draw)
                    if kind == "amp" and step == 4 and dist.get_rank() == 1:
                        loss = loss * torch.inf
                    state.observe_loss(loss)
                    scaler.scale(loss).backward()
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skipped += scaler.get_scale() < before
            if kind == "schedule":
                scheduler.step()
            if drains:
                state.drain()
                found.append(flat(model))
            if step + 1 == saves:
                draws = [torch.empty_like(draw.get_state()) for _ in range(2)]
                dist.all_gather(draws, draw.get_state())
                own: list[str] = [""] * 2
                dist.all_gather_object(own, json.dumps(state.state_dict()))
                states = module.state_dict(), optimizer.state_dict(), own, draws
                checkpoint = step + 1, copy.deepcopy(states)
        later = state.later_share
        state.drain()
        found.append(flat(model))
        assert state._steps is None or isnan(state._steps.seconds()), "what follows is no computing"
    return {"parameters": found, "later": later, "skipped": skipped, "checkpoint": checkpoint}


OSP: dict[str, Any] = {"synchronization": "osp", "settings": {"share": 0.6, "slice_bytes": PIECE_BYTES}}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "settings", [{}, {"late": "carry"}, {"prediction": "local"}, {"prediction": "none"}], ids=str
)
def test_osp_leaves_all_ranks_with_the_same_bits(
    ranks: Ranks, tmp_path: Path, settings: Any, optimizer: str
) -> None:
    options = {**OSP, "settings": {**OSP["settings"], **settings}}
    first, second = ranks.results(2, train, options, optimizer, store=tmp_path)
    assert first["later"] == second["later"] > 0
    assert torch.equal(first["parameters"][-1], second["parameters"][-1])
    bsp, _ = ranks.results(2, train, {}, optimizer, store=tmp_path)
    difference = (first["parameters"][-1] - bsp["parameters"][-1]).abs().max()
    assert 0 < difference < 1, "it is another way to about the same place"


@pytest.mark.parametrize("kind", ["plain", "accumulation", "amp", "schedule"])
def test_osp_without_later_is_bsp_bit_by_bit(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    options = {"synchronization": "osp", "settings": {"share": 0.0}}
    osp, _ = ranks.results(2, train, options, "adamw", STEPS, kind, store=tmp_path)
    bsp, _ = ranks.results(2, train, {}, "adamw", STEPS, kind, store=tmp_path)
    assert osp["later"] == 0
    assert torch.equal(osp["parameters"][-1], bsp["parameters"][-1])
    assert osp["skipped"] == bsp["skipped"] == (kind == "amp")


@pytest.mark.parametrize("kind", ["accumulation", "amp", "schedule"])
def test_osp_that_drains_after_each_step_is_bsp(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    """Then nothing is computed with predictions: what is left is whether corrections are the optimizer's."""
    osp, other = ranks.results(2, train, {**OSP, "drains": True}, "momentum", STEPS, kind, store=tmp_path)
    bsp, _ = ranks.results(2, train, {"drains": True}, "momentum", STEPS, kind, store=tmp_path)
    assert osp["later"]
    assert osp["skipped"] == other["skipped"] == bsp["skipped"] == (kind == "amp")
    for ours, theirs, others in zip(osp["parameters"], bsp["parameters"], other["parameters"], strict=True):
        assert torch.equal(ours, others)
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("options", [{}, OSP], ids=["bsp", "osp"])
def test_a_restart_from_a_checkpoint_is_as_if_it_had_not_been(
    ranks: Ranks, tmp_path: Path, options: Any
) -> None:
    whole, _ = ranks.results(2, train, {**options, "saves": 5}, "momentum", 10, store=tmp_path)
    again = {**options, "saved": whole["checkpoint"]}
    restarted, other = ranks.results(2, train, again, "momentum", 10, store=tmp_path)
    assert torch.equal(restarted["parameters"][-1], whole["parameters"][-1])
    assert torch.equal(restarted["parameters"][-1], other["parameters"][-1])
    if options:
        assert restarted["later"] == whole["later"] > 0


def _spoils(spoil: str, options: dict[str, Any]) -> str:
    """What a training says that changes what it should not."""
    module = model_of()
    model = DistributedDataParallel(module, broadcast_buffers=spoil == "buffers")
    kind = torch.optim.LBFGS if spoil == "lbfgs" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.1)
    draw = generator(dist.get_rank())
    try:
        with MltState(
            model, optimizer=None if spoil == "none" else optimizer, piece_bytes=PIECE_BYTES, **options
        ) as state:
            model.register_comm_hook(state, mlt_hook)
            for _ in range(5):
                optimizer.zero_grad()
                loss = loss_of(model, draw)
                if spoil == "nan" and dist.get_rank():
                    loss = loss * torch.nan
                loss.backward()
                optimizer.step((lambda: 0.0) if spoil == "closure" else None)
                if spoil == "twice":
                    module.state_dict()
                    optimizer.step()
    except (MltswitchError, RuntimeError) as error:  # also the other rank's, which ends this one
        return str(error)
    return ""


@pytest.mark.parametrize("options", [OSP, {"synchronization": "asp"}], ids=["osp", "asp"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("", ""),
        ("none", "optimizer: "),
        ("lbfgs", "LBFGS"),
        ("closure", "steps with a closure"),
        ("twice", "steps twice after the gradients of step"),
    ],
)
def test_what_cannot_be_corrected_is_refused(
    ranks: Ranks, tmp_path: Path, spoil: str, said: str, options: Any
) -> None:
    for answer in ranks.results(2, _spoils, spoil, options, store=tmp_path):
        assert said in answer
        assert bool(said) == bool(answer)


def test_what_only_one_of_them_refuses(ranks: Ranks, tmp_path: Path) -> None:
    carry = {**OSP, "settings": {**OSP["settings"], "late": "carry"}}
    for spoil, options, said in (
        ("nan", OSP, "gradients of a rank in step 0 are not finite"),
        ("buffers", {"synchronization": "asp"}, "broadcast_buffers=False"),
        ("buffers", OSP, ""),
        ("", carry, ""),
    ):
        for answer in ranks.results(2, _spoils, spoil, options, store=tmp_path):
            assert said in answer
            assert bool(said) == bool(answer)


class _Fixed(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Gradients are its inputs, whatever the parameters are: `osp` then is `bsp` in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.zeros(700) for _ in range(6)])
        self.unused = torch.nn.Parameter(torch.ones(600))

    def forward(self, gradients: Any) -> Any:
        return sum((weight * part).sum() for weight, part in zip(self.weights, gradients, strict=True))


def _unsteady(options: dict[str, Any], kind: str) -> Any:
    """Parameters after steps of which some are left out, or need two backward passes, or have zeros."""
    rank = dist.get_rank()
    module = _Fixed()
    model = DistributedDataParallel(module, find_unused_parameters=True)
    lr = torch.tensor(0.1) if kind == "lr" else 0.1
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 12) if kind == "cycle" else None
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=kind in {"amp", "zeros"})
    draw = generator(rank)
    with MltState(model, optimizer=optimizer, piece_bytes=1400, **options) as state:
        model.register_comm_hook(state, mlt_hook)
        for step in range(12):
            optimizer.zero_grad()
            for _ in range(2 if kind == "micro" else 1):
                gradients = torch.randn(6, 700, generator=draw)
                if kind == "zeros":
                    gradients[: 3 + rank] *= rank
                if kind == "amp" and step % 4 == 3 and rank:
                    gradients[2, 5] = torch.inf
                scaler.scale(model(gradients)).backward()
            if kind == "skip" and step % 3 == 1:
                continue
            scaler.step(optimizer)
            scaler.update()
            if schedule is not None:
                schedule.step()
            if kind == "lr":
                optimizer.param_groups[0]["lr"].mul_(0.9)
            if kind == "reload" and step == 5:
                saved = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
            if kind == "reload" and step == 8:
                module.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
    return flat(module)


@pytest.mark.parametrize("late", ["wait", "carry"])
@pytest.mark.parametrize("kind", ["", "skip", "amp", "zeros", "micro", "lr", "cycle", "reload"])
def test_corrections_lead_where_sums_would_have(ranks: Ranks, tmp_path: Path, kind: str, late: str) -> None:
    options = {**OSP, "settings": {"share": 0.7, "slice_bytes": 1, "late": late}}
    first, second = ranks.results(2, _unsteady, options, kind, store=tmp_path)
    bsp, _ = ranks.results(2, _unsteady, {}, kind, store=tmp_path)
    assert torch.equal(first, second)
    assert torch.allclose(first, bsp, rtol=1e-5, atol=1e-5)


def test_a_push_counts_once_or_is_refused(ranks: Ranks, tmp_path: Path) -> None:
    found = ranks.run(
        _unsteady,
        {"synchronization": "asp"},
        "micro",
        store=tmp_path,
        jobs=[{"rank": rank, "world_size": 2} for rank in range(2)],
    )
    assert all("has not stepped with the gradients of step 0" in str(each) for each in found), found


def _looks(options: dict[str, Any]) -> dict[str, Any]:
    """Parameters as evaluation, a checkpoint and plain training see them after a step with predictions."""
    model = DistributedDataParallel(model_of(), bucket_cap_mb=0.01)
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    draw, inputs = generator(dist.get_rank()), torch.ones(4, 32)
    seen: dict[str, Any] = {}
    with MltState(model, optimizer=optimizer, piece_bytes=PIECE_BYTES, **options) as state:
        model.register_comm_hook(state, mlt_hook)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, draw).backward()
            optimizer.step()
            if step == 3:
                seen["predicted"] = flat(model)
                model.eval()
                with torch.no_grad():
                    model(inputs)
                model.train()
                seen["evaluated"] = flat(model)
        model.module.state_dict()
        seen["saved"] = flat(model)
    return seen


def test_evaluation_and_checkpoints_see_all_gradients(ranks: Ranks, tmp_path: Path) -> None:
    first, second = ranks.results(2, _looks, OSP, store=tmp_path)
    assert not torch.equal(first["predicted"], second["predicted"]), "own gradients stood in"
    assert torch.equal(first["evaluated"], second["evaluated"])
    assert torch.equal(first["saved"], second["saved"])


@pytest.mark.parametrize("synchronization", ["asp", "ssp", "r2sp"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_lone_pushes_end_with_the_same_parameters(
    ranks: Ranks, tmp_path: Path, synchronization: str, optimizer: str
) -> None:
    first, second = ranks.results(
        2, train, {"synchronization": synchronization}, optimizer, STEPS, "schedule", store=tmp_path
    )
    assert torch.equal(first["parameters"][-1], second["parameters"][-1])
    start = flat(model_of())
    bsp, _ = ranks.results(2, train, {}, optimizer, STEPS, "schedule", store=tmp_path)
    moved = (bsp["parameters"][-1] - start).norm()
    assert (first["parameters"][-1] - bsp["parameters"][-1]).norm() < moved, "nearer than the start"


def _weighted(options: dict[str, Any]) -> Any:
    model = DistributedDataParallel(model_of(), broadcast_buffers=False)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    with MltState(model, optimizer=optimizer, samples=1 + 2 * dist.get_rank(), **options) as state:
        model.register_comm_hook(state, mlt_hook)
        loss_of(model, generator(dist.get_rank())).backward()
        optimizer.step()
        state.drain()
    return flat(model)


@pytest.mark.parametrize("synchronization", ["bsp", "osp", "asp"])
def test_gradients_are_weighted_by_samples(ranks: Ranks, tmp_path: Path, synchronization: str) -> None:
    first, second = ranks.results(2, _weighted, {"synchronization": synchronization}, store=tmp_path)
    plain = model_of()
    optimizer = OPTIMIZERS["sgd"](plain.parameters())
    for rank, weight in ((0, 0.25), (1, 0.75)):
        (weight * loss_of(plain, generator(rank))).backward()
    optimizer.step()
    assert torch.equal(first, second)
    assert torch.allclose(first, flat(plain), atol=1e-6)
