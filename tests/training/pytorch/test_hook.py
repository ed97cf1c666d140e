"""DistributedDataParallel by the communication hook, against DDP's own all-reduce; ranks are processes."""

import logging.handlers
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402  (torch may be missing)

from mltswitch.errors import MltswitchError, UserInputError  # noqa: E402
from mltswitch.training.errors import TrainingError  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from mltswitch.training.pytorch.rank import CONFIG_VARIABLE  # noqa: E402
from tests.hostagent.ends import losing  # noqa: E402
from tests.training.pytorch.ranks import Ranks, flat, generator  # noqa: E402

pytestmark = pytest.mark.torch
dist = torch.distributed
STEPS = 6


def _model(dtype: Any = None) -> Any:
    torch.manual_seed(1)
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, 300), nn.ReLU(), nn.Linear(300, 10)
    )
    return model.to(dtype or torch.float32)


def _loss(model: Any, draw: Any, dtype: Any = None) -> Any:
    inputs = torch.randn(32, 64, generator=draw).to(dtype or torch.float32)
    labels = torch.randint(0, 10, (32,), generator=draw)
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def _plain_step(model: Any, optimizer: Any, draw: Any) -> None:
    optimizer.zero_grad()
    _loss(model, draw, next(model.parameters()).dtype).backward()
    optimizer.step()


def _accumulating_step(model: Any, optimizer: Any, draw: Any) -> None:
    optimizer.zero_grad()
    for is_last in (False, True):
        with nullcontext() if is_last else model.no_sync():
            _loss(model, draw).backward()
    optimizer.step()


def _amp_step(model: Any, optimizer: Any, draw: Any) -> None:
    scaler = torch.amp.GradScaler(torch.get_default_device().type)
    optimizer.zero_grad()
    with torch.autocast(torch.get_default_device().type, torch.bfloat16):
        loss = _loss(model, draw)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


STEP_KINDS: dict[str, tuple[Callable[..., None], Any]] = {
    "plain": (_plain_step, None),
    "accumulation": (_accumulating_step, None),
    "amp": (_amp_step, None),
    "float64": (_plain_step, torch.float64),
    "bfloat16": (_plain_step, torch.bfloat16),
}


def _train(kind: str, options: dict[str, Any] | None, lost_share: float = 0.0) -> dict[str, Any]:
    """Parameters after some steps, by DDP itself where there are no options."""
    step, dtype = STEP_KINDS[kind]
    model = DistributedDataParallel(_model(dtype), bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    draw = generator(dist.get_rank())
    if options is None:
        for _ in range(STEPS):
            step(model, optimizer, draw)
        return {"parameters": flat(model)}
    with MltState(model, **options) as state, ExitStack() as stack:
        model.register_comm_hook(state, mlt_hook)
        if lost_share:
            stack.enter_context(losing(state.agent, lost_share))
        for _ in range(STEPS):
            step(model, optimizer, draw)
        losses = [(loss.total.piece, loss.sender, loss.elements) for loss in state.take_losses()]
        return {"parameters": flat(model), "losses": losses, "nonfinite": state.nonfinite_pieces}


@pytest.mark.parametrize("kind", STEP_KINDS)
def test_a_lossless_job_trains_as_ddp_itself(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    plain = ranks.results(2, _train, kind, None, store=tmp_path)
    ours = ranks.results(2, _train, kind, {}, store=tmp_path)
    assert torch.equal(ours[0]["parameters"], ours[1]["parameters"])
    tolerance = 2e-2 if kind == "bfloat16" else 1e-9  # DDP adds bfloat16 in bfloat16
    assert torch.allclose(ours[0]["parameters"], plain[0]["parameters"], rtol=tolerance, atol=tolerance)
    assert ours[0]["losses"] == []


@pytest.mark.parametrize(
    "options", [{"topology": "ring"}, {"transport": "tcp"}, {"piece_bytes": 20_000}], ids=str
)
def test_every_point_gives_the_same_sums(ranks: Ranks, tmp_path: Path, options: dict[str, Any]) -> None:
    plain = ranks.results(2, _train, "plain", None, store=tmp_path)
    ours = ranks.results(2, _train, "plain", options, store=tmp_path)
    assert torch.equal(ours[0]["parameters"], ours[1]["parameters"])
    assert torch.allclose(ours[0]["parameters"], plain[0]["parameters"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"topology": "ring"}, {"transport": "tcp"}, {"synchronization": "osp"}], ids=str
)
def test_gradients_may_travel_as_bfloat16(ranks: Ranks, tmp_path: Path, options: dict[str, Any]) -> None:
    plain = ranks.results(2, _train, "plain", None, store=tmp_path)
    ours = ranks.results(2, _train_short, options, store=tmp_path)
    assert torch.equal(ours[0]["parameters"], ours[1]["parameters"])
    if "synchronization" not in options:
        assert torch.allclose(ours[0]["parameters"], plain[0]["parameters"], rtol=1e-2, atol=1e-3)
        assert not torch.equal(ours[0]["parameters"], plain[0]["parameters"])
    assert ours[0]["shares"] == pytest.approx(0.5, rel=0.02)


def _train_short(options: dict[str, Any]) -> dict[str, Any]:
    """Parameters, and what was posted over what would be as float32."""
    model = DistributedDataParallel(_model(), bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    draw = generator(dist.get_rank())
    if "synchronization" in options:
        options = {**options, "optimizer": optimizer}
    with MltState(model, wire_type="bfloat16", **options) as state:
        model.register_comm_hook(state, mlt_hook)
        sent: list[int] = []
        channel: Any = state._node._carrier.channel
        post = channel.post_sends

        def counting(peer: str, requests: Any, inbox: Any) -> Any:
            sent.extend(request.data.nbytes for request in requests)
            return post(peer, requests, inbox)

        channel.post_sends = counting
        for _ in range(STEPS):
            _plain_step(model, optimizer, draw)
        state.drain()
        elements = sum(parameter.numel() for parameter in model.parameters())
        return {"parameters": flat(model), "shares": sum(sent) / (STEPS * elements * 4)}


def test_what_a_bound_leaves_out_is_told_and_ranks_stay_equal(ranks: Ranks, tmp_path: Path) -> None:
    options = {"loss_bound": 0.3, "config": _short_packets()}
    ours = ranks.results(2, _train, "plain", options, 0.1, store=tmp_path)
    assert torch.equal(ours[0]["parameters"], ours[1]["parameters"])
    losses = [loss for each in ours for loss in each["losses"]]
    assert losses
    elements = sum(parameter.numel() for parameter in _model().parameters())
    assert sum(loss[-1] for loss in losses) < 0.3 * elements * STEPS * 2
    lossless = ranks.results(2, _train, "plain", {}, store=tmp_path)
    assert not torch.equal(ours[0]["parameters"], lossless[0]["parameters"])


def _short_packets() -> Any:
    """One datagram a packet, so that a filter of sockets loses single packets."""
    from mltswitch.hostagent import AgentConfig

    return AgentConfig(mtu_bytes=1500, burst_packets=1)


def _nan() -> tuple[int, list[str]]:
    model = DistributedDataParallel(_model())
    said = logging.handlers.BufferingHandler(100)
    logging.getLogger("mltswitch").addHandler(said)
    with MltState(model) as state:
        model.register_comm_hook(state, mlt_hook)
        for _ in range(2):
            (_loss(model, generator(0)) * float("nan")).backward()
        assert all(torch.isnan(parameter.grad).all() for parameter in model.parameters())
        return state.nonfinite_pieces, [record.getMessage() for record in said.buffer]


def test_nan_gradients_are_passed_on_and_counted_and_said_once(ranks: Ranks, tmp_path: Path) -> None:
    for rank, (pieces, said) in enumerate(ranks.results(2, _nan, store=tmp_path)):
        assert pieces > 0
        assert said == [f"rank {rank}, step 0: gradients with NaN or infinity are passed on"]


def _last_rank_closes_first(delays: list[int]) -> bool:
    """Ranks leave at different times after the last step, and nobody's last step fails."""
    model = DistributedDataParallel(_model(), bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = generator(dist.get_rank())
    with MltState(model) as state:
        model.register_comm_hook(state, mlt_hook)
        for _ in range(STEPS):
            _plain_step(model, optimizer, draw)
        for _ in range(delays[dist.get_rank()]):
            _loss(model.module, draw)
    return state.error is None


@pytest.mark.parametrize("delays", [[0, 300], [300, 0]])
def test_ranks_may_leave_at_different_times(ranks: Ranks, tmp_path: Path, delays: list[int]) -> None:
    assert ranks.results(2, _last_rank_closes_first, delays, store=tmp_path) == [True, True]


def _short_of(config: str | None) -> tuple[int, str]:
    """Longest packet of the agent that a file sets up, named by the argument or by the variable; an error."""
    model = DistributedDataParallel(_model())
    try:
        with MltState(model, config=config) as state:
            return state.agent.config.mtu_bytes, ""
    except UserInputError as error:
        return 0, str(error)


def _short_by_variable(path: str) -> tuple[int, str]:
    os.environ[CONFIG_VARIABLE] = path
    try:
        return _short_of(None)
    finally:
        del os.environ[CONFIG_VARIABLE]


@pytest.mark.parametrize("work", [_short_of, _short_by_variable])
def test_a_file_sets_up_the_agent(ranks: Ranks, tmp_path: Path, work: Callable[[str], object]) -> None:
    (tmp_path / "agent.yaml").write_text("mtu_bytes: 1234\nlisten: 127.0.0.1:0\n")
    assert ranks.results(2, work, str(tmp_path / "agent.yaml"), store=tmp_path) == [(1234, "")] * 2
    answers = ranks.results(2, work, str(tmp_path / "none.yaml"), store=tmp_path)
    assert all("none.yaml" in error for _, error in answers)


def _misused(case: str) -> list[str]:
    """What a rank hears that goes on where the job cannot."""
    module, said = _model(), []
    model = DistributedDataParallel(module, bucket_cap_mb=0.1)
    with MltState(model, deadline_seconds=20) as state:
        model.register_comm_hook(state, mlt_hook)
        draw = generator(dist.get_rank())
        _loss(model, draw).backward()
        if case == "frozen":
            module[0].requires_grad_(False)
            model = DistributedDataParallel(module)
            model.register_comm_hook(state, mlt_hook)
        elif case == "closed":
            state.close()
        for _ in range(2):
            with pytest.raises((RuntimeError, MltswitchError)) as caught:
                _loss(model, draw).backward()
            said.append(str(caught.value).splitlines()[0])
            model = DistributedDataParallel(module)  # the old one's step is not over for torch
            model.register_comm_hook(state, mlt_hook)
    return said


@pytest.mark.parametrize(
    ("case", "expected"), [("frozen", "has no gradients of 0"), ("closed", "has left the job")]
)
def test_a_step_that_cannot_end_is_an_error(ranks: Ranks, tmp_path: Path, case: str, expected: str) -> None:
    for said in ranks.results(2, _misused, case, store=tmp_path):
        assert expected in said[0]
        assert said[1]


def _fails_inside() -> str:
    model = DistributedDataParallel(_model(), bucket_cap_mb=0.1)
    with MltState(model, deadline_seconds=20) as state:
        model.register_comm_hook(state, mlt_hook)
        dist.barrier()  # a fault while the other still starts would end its start
        if dist.get_rank() == 0:
            state._results = [vector[:10] for vector in state._results]  # results do not fit any more
        with pytest.raises((RuntimeError, MltswitchError)):
            _loss(model, generator(0)).backward()
        return str(state.error)


def test_a_fault_in_the_nodes_thread_ends_the_job_everywhere(ranks: Ranks, tmp_path: Path) -> None:
    for text in ranks.results(2, _fails_inside, store=tmp_path):
        assert text.startswith("rank 0: ")


def _second_agent() -> bool:
    """The backend's agent has the port of the file; the hook's takes another."""
    model = DistributedDataParallel(_model())
    taken = dist.group.WORLD._family._agents.agent.listening_at
    from mltswitch.hostagent import AgentConfig

    with MltState(model, config=AgentConfig(listen=str(taken))) as state:
        model.register_comm_hook(state, mlt_hook)
        _loss(model, generator(0)).backward()
        return bool(state.agent.listening_at != taken)


def test_a_port_that_is_taken_is_no_obstacle(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks.results(2, _second_agent, store=tmp_path) == [True, True]


def _without_its_server(folder: str) -> str:
    try:
        MltState(_model(), servers=1, rendezvous=f"file://{folder}/meeting", timeout_seconds=2)
    except TrainingError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_server_that_does_not_come_is_named(ranks: Ranks, tmp_path: Path) -> None:
    expected = "NodeLateError: server 0: did not come to the start"
    assert ranks.results(2, _without_its_server, str(tmp_path), store=tmp_path) == [expected] * 2


def test_the_hook_can_be_what_imports_torch_first() -> None:
    """Torch then looks for the backend in a package that is still being imported."""
    code = "import mltswitch.training.pytorch.hook, torch; print(torch.distributed.Backend.backend_list)"
    found = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert "'mlt'" in found.stdout, found.stderr
