"""Synchronizations around a real optimizer, over real agents; ranks are processes."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402  (torch may be missing)

from mltswitch.errors import UserInputError  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from tests.training.pytorch.test_backend import DEVICES, Ranks, generator  # noqa: E402

pytestmark = pytest.mark.torch
dist = torch.distributed
STEPS = 8
PIECE_BYTES = 2048


@pytest.fixture(scope="module", params=DEVICES)
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    found = Ranks(2, request.param)
    yield found
    for process in found.processes:
        process.kill()
        process.join()


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


def flat(model: Any) -> Any:
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in model.parameters()]).cpu()


def train(
    options: dict[str, Any], optimizer_name: str = "momentum", steps: int = STEPS, kind: str = "plain"
) -> dict[str, Any]:
    """Drained parameters after each step, and what is later in the last one."""
    module = model_of()
    model = DistributedDataParallel(module, bucket_cap_mb=0.01)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2, enabled=kind == "amp")
    draw, skipped = generator(dist.get_rank()), 0
    drains = options.pop("drains", False)
    found = []
    with MltState(model, optimizer=optimizer, piece_bytes=PIECE_BYTES, **options) as state:
        model.register_comm_hook(state, mlt_hook)
        for step in range(steps):
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
        later = sorted(state._member.later(steps - 1))
        state.drain()
        found.append(flat(model))
    return {"parameters": found, "later": later, "skipped": skipped}


OSP = {"synchronization": "osp", "settings": {"share": 0.6, "slice_bytes": PIECE_BYTES}}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "settings", [{}, {"late": "carry"}, {"prediction": "local"}, {"prediction": "none"}], ids=str
)
def test_osp_leaves_all_ranks_with_the_same_bits(
    ranks: Ranks, tmp_path: Path, settings: Any, optimizer: str
) -> None:
    options = {**OSP, "settings": {**OSP["settings"], **settings}}
    first, second = ranks.results(2, train, options, optimizer, store=tmp_path)
    assert first["later"] == second["later"] != []
    assert torch.equal(first["parameters"][-1], second["parameters"][-1])
    bsp, _ = ranks.results(2, train, {}, optimizer, store=tmp_path)
    difference = (first["parameters"][-1] - bsp["parameters"][-1]).abs().max()
    assert 0 < difference < 1, "it is another way to about the same place"


@pytest.mark.parametrize("kind", ["plain", "accumulation", "amp", "schedule"])
def test_osp_without_later_is_bsp_bit_by_bit(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    options = {"synchronization": "osp", "settings": {"share": 0.0}}
    osp, _ = ranks.results(2, train, options, "adamw", STEPS, kind, store=tmp_path)
    bsp, _ = ranks.results(2, train, {}, "adamw", STEPS, kind, store=tmp_path)
    assert osp["later"] == []
    assert torch.equal(osp["parameters"][-1], bsp["parameters"][-1])
    assert osp["skipped"] == bsp["skipped"] == (kind == "amp")


@pytest.mark.parametrize("kind", ["accumulation", "amp", "schedule"])
def test_osp_that_drains_after_each_step_is_bsp(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    """Then nothing is ever computed with predictions: what is left is whether corrections are the optimizer's."""
    osp, other = ranks.results(2, train, {**OSP, "drains": True}, "momentum", STEPS, kind, store=tmp_path)
    bsp, _ = ranks.results(2, train, {"drains": True}, "momentum", STEPS, kind, store=tmp_path)
    assert osp["later"]
    assert osp["skipped"] == other["skipped"] == bsp["skipped"] == (kind == "amp")
    for ours, theirs, others in zip(osp["parameters"], bsp["parameters"], other["parameters"], strict=True):
        assert torch.equal(ours, others)
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7)


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
    assert (first["parameters"][-1] - bsp["parameters"][-1]).norm() < 0.7 * moved
