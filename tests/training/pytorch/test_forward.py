"""Forward passes that wait for each parameter by itself, against the hook of DDP; ranks are processes."""

import copy
import io
import pickle
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402  (torch may be missing)

from mltswitch.training.errors import TrainingError  # noqa: E402
from mltswitch.training.pytorch.forward import BY_PARAMETER, MltForward  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from tests.hostagent.ends import losing  # noqa: E402
from tests.training.pytorch.ranks import Ranks, flat, generator  # noqa: E402
from tests.training.pytorch.test_hook import _short_packets  # noqa: E402

pytestmark = pytest.mark.torch
dist = torch.distributed
nn: Any = torch.nn
STEPS = 5
WIDTH = 32


class Odd(nn.Module):  # type: ignore[misc]  # torch has no types here
    """What a forward pass may do with its layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words = nn.Embedding(20, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)  # reads its layer's weights itself
        self.norm = nn.LayerNorm(WIDTH)
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.swapped = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.sometimes = nn.Linear(WIDTH, WIDTH)
        self.never = nn.Linear(WIDTH, WIDTH)
        self.memory = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False)
        self.passes = 0

    def forward(self, inputs: Any) -> Any:
        found = self.words(inputs)
        found = found + self.attention(found, found, found)[0]
        found = self.twice(self.norm(found).relu()) * self.scale
        order = reversed(self.swapped) if self.passes % 2 else self.swapped
        for layer in order:
            found = layer(found).tanh()
        if (self.passes + dist.get_rank()) % 3 == 0:  # on some ranks, in some steps, on none in others
            found = self.sometimes(found)
        found = self.frozen(self.memory(self.twice(found))[0])
        self.passes += 1
        return found @ self.words.weight.t()  # tied


def _loss(model: Any, draw: Any) -> Any:
    inputs = torch.randint(0, 20, (4, 6), generator=draw)
    labels = torch.randint(0, 20, (24,), generator=draw)
    return nn.functional.cross_entropy(model(inputs).reshape(24, 20), labels)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "groups": lambda p: torch.optim.SGD(
        [{"params": p[::2], "lr": 0.05, "weight_decay": 0.1}, {"params": p[1::2]}], lr=0.1, momentum=0.5
    ),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, maximize=True, foreach=True),
} | {
    name: lambda p, name=name: getattr(torch.optim, name)(p, lr=0.01)
    for name in sorted(BY_PARAMETER - {"SGD", "Adam", "AdamW", "Muon"})
}


def _backward(model: Any, draw: Any, passes: int, no_sync: Any, scale: Callable[[Any], Any]) -> None:
    for number in range(passes):
        with no_sync() if number < passes - 1 else nullcontext():
            scale(_loss(model, draw)).backward()


def _train(way: str, maker: str, options: dict[str, Any]) -> dict[str, Any]:
    """Parameters and the optimizer's state after some steps, by `MltForward` or by the hook."""
    passes, options = options.pop("passes", 1), {**options}
    clips, scales = options.pop("clips", False), options.pop("scales", False)
    scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=1024.0, enabled=scales)
    model, draw = Odd(), generator(dist.get_rank())
    if way == "forward":
        state: Any = MltForward(model, MAKERS[maker], **options)
        optimizer, trained, no_sync = state.optimizer, model, state.no_sync
    else:
        trained = DistributedDataParallel(model, find_unused_parameters=True)
        optimizer = MAKERS[maker]([each for each in model.parameters() if each.requires_grad])
        state, no_sync = MltState(trained, **options), trained.no_sync
        trained.register_comm_hook(state, mlt_hook)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with state:
        for _ in range(STEPS):
            optimizer.zero_grad()
            _backward(trained, draw, passes, no_sync, scaler.scale)
            if way == "forward" and (clips or scales):
                state.synchronize()
            scaler.unscale_(optimizer)
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        kinds = {type(each) for each in model.parameters()}
        momenta = optimizer.state_dict()["state"]
    assert kinds == {nn.Parameter} or way == "forward"
    assert {type(each) for each in model.parameters()} == {nn.Parameter}
    return {"parameters": flat(model), "momenta": momenta, "waited": len(kinds) > 1}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other)


@pytest.mark.parametrize(
    ("maker", "options"),
    [
        *((maker, {}) for maker in MAKERS),
        ("AdamW", {"topology": "ring"}),
        ("momentum", {"transport": "tcp", "piece_bytes": 3000}),
        ("momentum", {"transport": "ltp"}),
        ("momentum", {"passes": 3}),
        ("AdamW", {"clips": True}),
        ("momentum", {"clips": True, "scales": True, "passes": 2}),
        ("Adam", {"check_every": 1}),
    ],
    ids=str,
)
def test_each_step_is_that_of_the_hook(
    ranks: Ranks, tmp_path: Path, maker: str, options: dict[str, Any]
) -> None:
    theirs = ranks.results(2, _train, "hook", maker, options, store=tmp_path)
    ours = ranks.results(2, _train, "forward", maker, options, store=tmp_path)
    assert torch.equal(ours[0]["parameters"], theirs[0]["parameters"])
    assert torch.equal(ours[0]["parameters"], ours[1]["parameters"])
    assert _same(ours[0]["momenta"], theirs[0]["momenta"])


def _line(*sizes: int) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(first, second) for first, second in pairwise(sizes)))


def _sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1)


def _read_early(folder: Path) -> bool:
    """The last layer can be read while another rank has not given the gradients of the first one."""
    model, seen = _line(50, 50, 50, 50), folder / "seen"
    before = flat(model[2])
    with MltForward(model, _sgd, deadline_seconds=20, piece_bytes=1000) as forward:
        if dist.get_rank() == 1:

            def wait(*_: Any) -> None:
                until = time.monotonic() + 10
                while not seen.exists() and time.monotonic() < until:
                    time.sleep(0.01)

            model[1].register_full_backward_hook(wait)
        model(torch.ones(2, 50)).sum().backward()
        forward.optimizer.step()
        assert dist.get_rank() == 1 or type(model[0].weight) is not nn.Parameter
        stepped = not torch.equal(flat(model[2]), before)
        was_early = not seen.exists()
        seen.touch()
        forward.drain()
    return stepped and (was_early or dist.get_rank() == 1)


def test_a_parameter_waits_for_its_own_sum_alone(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks.results(2, _read_early, tmp_path, store=tmp_path) == [True, True]


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "evaluation": lambda m, _: m.eval()(torch.ones(2, 50)),
    "state_dict": lambda m, _: torch.cat([each.reshape(-1) for each in m.state_dict().values()]),
    "deepcopy": lambda m, _: flat(copy.deepcopy(m)),
    "pickle": lambda m, _: flat(pickle.loads(pickle.dumps(m))),  # noqa: S301  (of our own)
    "save": lambda m, _: torch.save(m, io.BytesIO()) or flat(m),
    "data": lambda m, _: torch.cat([each.data.reshape(-1) for each in m.parameters()]),
    "numpy": lambda m, _: torch.from_numpy(m[1].weight.detach().cpu().numpy()),
    "vector": lambda m, _: nn.utils.parameters_to_vector(m.parameters()),
    "one layer": lambda m, _: m[1](torch.ones(2, 50)),
    "functional": lambda m, _: torch.func.functional_call(
        m, dict(m.named_parameters()), (torch.ones(2, 50),)
    ),
    "printed": lambda m, _: torch.tensor([len(repr(each)) for each in m.parameters()]),
    "in place": lambda m, _: m[0].weight.data.mul_(2),
    "loaded": lambda m, _: m.load_state_dict(_line(50, 50, 50).state_dict()) and flat(m),
    "average": lambda m, _: flat(torch.optim.swa_utils.AveragedModel(m)),
    "momentum": lambda _, o: torch.cat([o.state_dict()["state"][at]["exp_avg"].view(-1) for at in range(4)]),
    "double": lambda m, _: flat(m.double()),
}


def _reads(way: str, reader: str) -> Any:
    model = _line(50, 50, 50)

    def adam(parameters: Any) -> Any:
        return torch.optim.Adam(parameters, lr=0.1)

    with MltForward(model, adam, piece_bytes=1000) as forward:
        model(torch.ones(2, 50)).sum().backward()
        metadata = [(each.shape, each.requires_grad, each.numel()) for each in model.parameters()]
        forward.optimizer.step()
        forward.optimizer.zero_grad(set_to_none=False)
        assert metadata == [(each.shape, each.requires_grad, each.numel()) for each in model.parameters()]
        if way == "drained":
            forward.drain()
            assert {type(each) for each in model.parameters()} == {nn.Parameter}
        return READERS[reader](model, forward.optimizer).detach().cpu()


@pytest.mark.parametrize("reader", READERS)
def test_whoever_reads_sees_the_step(ranks: Ranks, tmp_path: Path, reader: str) -> None:
    """Whatever it reads by, also what no layer's call announces."""
    late = ranks.results(2, _reads, "drained", reader, store=tmp_path)
    ours = ranks.results(2, _reads, "at once", reader, store=tmp_path)
    assert torch.equal(ours[0], late[0])
    assert torch.equal(ours[0], ours[1])


class Own(torch.optim.SGD):  # type: ignore[misc, name-defined]  # torch has no types here
    """Whose step nobody knows."""


def _clip(forward: Any, model: Any) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def _backward_anew(forward: Any, model: Any) -> None:
    model(torch.ones(2, 50)).sum().backward()


def _step_locally(forward: Any, model: Any) -> None:
    forward.optimizer.step()
    with forward.no_sync():
        model(torch.ones(2, 50)).sum().backward()


def _synchronize_late(forward: Any, model: Any) -> None:
    forward.optimizer.step()
    forward.synchronize()


def _grow(forward: Any, model: Any) -> None:
    forward.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})


def _trace(forward: Any, model: Any) -> None:
    forward.optimizer.step()
    torch.jit.trace(model, torch.ones(2, 50))


def _unfreeze(forward: Any, model: Any) -> None:
    model.register_parameter("late", nn.Parameter(torch.ones(3)))


def _lack_memory(forward: Any, model: Any) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    forward._partial.step = fail
    forward.optimizer.step()
    forward.drain()


MADE: dict[str, tuple[Any, dict[str, Any]]] = {
    "LBFGS": (torch.optim.LBFGS, {}),
    "own": (Own, {}),
    "foreign": (lambda p: _sgd([*p, nn.Parameter(torch.ones(3))]), {}),
    "lacking": (lambda p: _sgd(p[1:]), {}),
    "osp": (_sgd, {"synchronization": "osp"}),
    "given": (_sgd, {"optimizer": "sgd"}),
}
DONE: dict[str, Callable[[Any, Any], None]] = {
    "clipped": _clip,
    "twice": _backward_anew,
    "local": _step_locally,
    "late": _synchronize_late,
    "grown": _grow,
    "traced late": _trace,
    "unfrozen": _unfreeze,
    "failing": _lack_memory,
    "closure": lambda forward, _: forward.optimizer.step(lambda: 0.0),
}


def _fails(case: str) -> str:
    """What a rank says, where both are made so that they cannot be, or rank 0 alone does something then."""
    model: Any = _line(50, 50, 50)
    if case == "devices":
        model.register_parameter("far", nn.Parameter(torch.empty(3, device="meta")))
    maker, options = MADE.get(case, (_sgd, {}))
    try:
        outer = DistributedDataParallel(model) if case == "ddp" else model
        with MltForward(outer, maker, deadline_seconds=20, **options) as forward:
            called = torch.jit.trace(model, torch.ones(2, 50)) if case == "traced" else model
            for _ in range(3):
                forward.optimizer.zero_grad()
                called(torch.ones(2, 50)).sum().backward()
                if dist.get_rank() == 0 and case in DONE:
                    DONE[case](forward, model)
                forward.optimizer.step()
            forward.drain()
    except Exception as error:  # noqa: BLE001  (the test says what it expects)
        assert {type(each) for each in model.parameters()} == {nn.Parameter}
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("LBFGS", "optimizer: LBFGS may look at all parameters at once"),
        ("own", "optimizer: Own may look at all parameters at once"),
        ("foreign", "optimizer: has parameters that the model does not train, of shapes (3,)"),
        ("lacking", "0.weight: the optimizer lacks a parameter of shape (50, 50)"),
        ("osp", "synchronization: osp works around"),
        ("given", "optimizer: is given"),
        ("ddp", "model: is a DistributedDataParallel"),
        ("devices", "model: is on several devices: "),
        ("failing", "out of memory"),
        ("clipped", "optimizer: gradients have changed, by clipping or a scaler say"),
        ("twice", "optimizer: has not stepped with the gradients of step 0"),
        ("local", "optimizer: steps with gradients that ranks have not exchanged"),
        ("late", "synchronize: comes without gradients"),
        ("grown", "optimizer: has, or the model trains, other parameters than when this was made"),
        ("unfrozen", "optimizer: has, or the model trains, other parameters than when this was made"),
        ("closure", "optimizer: steps with a closure"),
        ("traced", "was read before its step, by what torch does not tell of"),
        ("traced late", "model: is traced before its step"),
    ],
)
def test_what_cannot_be_is_refused_by_name_on_all_ranks(
    ranks: Ranks, tmp_path: Path, case: str, expected: str
) -> None:
    said = ranks.results(2, _fails, case, store=tmp_path)
    assert expected in said[0], said
    assert expected[:40] in said[1], said


def _skips() -> bool:
    """A step that all ranks leave out, by what they know together, changes nothing."""
    model = _line(50, 50)
    with MltForward(model, _sgd) as forward:
        for scale in (1.0, 2.0, 1.0):
            before = flat(model)
            forward.optimizer.zero_grad()
            (scale * model(torch.ones(2, 50)).sum()).backward()
            forward.synchronize()
            if scale < 2:
                forward.optimizer.step()
            assert torch.equal(before, flat(model)) == (scale == 2)
        forward.optimizer.zero_grad()
        forward.optimizer.step()  # without gradients it does nothing, as any other one
        return True


def test_a_step_can_be_left_out_once_sums_are_there(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks.results(2, _skips, store=tmp_path) == [True, True]


def _breaks() -> str:
    model = _line(50, 50)
    forward = MltForward(model, _sgd, deadline_seconds=5)
    if dist.get_rank() == 1:
        model(torch.ones(2, 50)).sum().backward()
        forward.optimizer.step()
        forward.drain()
        forward.close("has had enough")
        return ""
    try:
        for _ in range(4):
            model(torch.ones(2, 50)).sum().backward()
            forward.optimizer.step()
    except Exception as error:  # noqa: BLE001  (the test says what it expects)
        forward.close("follows")
        flat(model)  # what is there can be read again
        return f"{type(error).__name__}: {error}"
    return "went on alone"


def test_who_waits_for_a_rank_that_is_gone_hears_why(ranks: Ranks, tmp_path: Path) -> None:
    assert "NodeLostError: rank 1: has had enough" in ranks.results(2, _breaks, store=tmp_path)[0]


def _go_on(forward: Any, model: Any) -> None:
    for _ in range(100):
        model(torch.ones(2, 50)).sum().backward()
        forward.optimizer.step()
        forward.drain()


def _reads_on(of_all: bool) -> list[str]:
    """What is asked for behind a step that has failed: each says so, and nothing waits for it.

    Args:
        of_all: all parameters were to be stepped together, else as their sums come.
    """
    model = _line(50, 50)
    forward = MltForward(model, _sgd, deadline_seconds=20)
    if dist.get_rank() == 1:  # which may hear of it in its first backward pass
        with pytest.raises(TrainingError, match="rank 0: RuntimeError: out of memory"):
            _go_on(forward, model)
        forward.close("follows")
        return []
    model(torch.ones(2, 50)).sum().backward()
    if of_all:
        forward._node.wait_until(lambda: len(forward._have_results) == len(forward.job.pieces))
    said = []
    for call in (lambda: _lack_memory(forward, model), forward.optimizer.state_dict, lambda: flat(model)):
        with pytest.raises((RuntimeError, TrainingError)) as failed:
            call()
        said.append(str(failed.value))
    forward.close("follows")
    assert all(each.grad is None for each in model.parameters())
    flat(model)
    return said


@pytest.mark.parametrize("of_all", [False, True])
def test_what_follows_a_step_that_failed_says_so_at_once(ranks: Ranks, tmp_path: Path, of_all: bool) -> None:
    said, _ = ranks.results(2, _reads_on, of_all, store=tmp_path)
    problem = "rank 0: has failed in the optimizer's step: RuntimeError('out of memory')"
    assert said == ["out of memory", problem, problem]


def _infers(way: str) -> Any:
    model = _line(50, 50, 50)
    with MltForward(model, MAKERS["nesterov"], piece_bytes=1000) as forward:
        for _ in range(2):
            forward.optimizer.zero_grad()
            model(torch.ones(2, 50)).sum().backward()
            forward.optimizer.step()
            if way == "drained":
                forward.drain()
            with torch.inference_mode():
                found = model(torch.ones(2, 50)).clone()
    return found.cpu()


def test_evaluation_in_inference_mode_may_make_the_step(ranks: Ranks, tmp_path: Path) -> None:
    late = ranks.results(2, _infers, "drained", store=tmp_path)
    assert torch.equal(ranks.results(2, _infers, "at once", store=tmp_path)[0], late[0])


class Kept(nn.Parameter):  # type: ignore[misc]  # torch has no types here
    """A parameter with a class of its own."""


class Sparse(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Parameters without elements, first, in between and last, and one of another class."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Parameter(torch.ones(0))
        self.layer = nn.Linear(50, 50)
        self.between = nn.Parameter(torch.ones(0))
        self.kept = Kept(torch.ones(50))
        self.last = nn.Parameter(torch.ones(0, 3))

    def forward(self, inputs: Any) -> Any:
        empty = self.first.sum() + self.between.sum() + self.last.sum()
        return self.layer(inputs) * self.kept + empty


def _trains_sparse(way: str, piece_bytes: int) -> Any:
    model = Sparse()
    if way == "forward":
        state: Any = MltForward(model, MAKERS["momentum"], piece_bytes=piece_bytes, deadline_seconds=20)
        optimizer, trained = state.optimizer, model
    else:
        trained = DistributedDataParallel(model)
        optimizer, state = MAKERS["momentum"](model.parameters()), MltState(trained, piece_bytes=piece_bytes)
        trained.register_comm_hook(state, mlt_hook)
    with state:
        for _ in range(3):
            optimizer.zero_grad()
            trained(torch.ones(2, 50)).sum().backward()
            optimizer.step()
    assert [type(each) for each in model.parameters()].count(Kept) == 1
    return flat(model)


@pytest.mark.parametrize("piece_bytes", [1 << 20, 400])
def test_parameters_without_elements_and_of_other_classes(
    ranks: Ranks, tmp_path: Path, piece_bytes: int
) -> None:
    theirs = ranks.results(2, _trains_sparse, "hook", piece_bytes, store=tmp_path)
    ours = ranks.results(2, _trains_sparse, "forward", piece_bytes, store=tmp_path)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[0], ours[1])


def _leaves_unused() -> tuple[bool, int]:
    """Whether layers that no rank uses stay as they were, and how many elements were lost."""
    model: Any = nn.ModuleList([nn.Linear(20, 20) for _ in range(20)])
    options = {"loss_bound": 0.5, "config": _short_packets(), "deadline_seconds": 20}
    with MltForward(model, MAKERS["momentum"], **options) as forward, losing(forward.agent, 0.2):
        before = [flat(layer) for layer in model]
        for _ in range(STEPS):
            forward.optimizer.zero_grad()
            found = torch.randn(2, 20, generator=generator(dist.get_rank()))
            for layer in model[::2]:
                found = layer(found)
            found.square().sum().backward()
            forward.optimizer.step()
        stayed = [torch.equal(flat(layer), then) for layer, then in zip(model, before, strict=True)]
        lost = sum(loss.elements for loss in forward.take_losses())
    return stayed == [False, True] * 10, lost


def test_who_loses_gradients_steps_no_layer_that_nobody_uses(ranks: Ranks, tmp_path: Path) -> None:
    found = ranks.results(2, _leaves_unused, store=tmp_path)
    assert all(stayed for stayed, _ in found)
    assert sum(lost for _, lost in found) > 0
