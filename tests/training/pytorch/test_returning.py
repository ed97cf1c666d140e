"""What a rank that comes back takes from the others, and what it must not be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mltswitch.errors import UserInputError  # noqa: E402  (torch may be missing)
from mltswitch.training.errors import JobMismatchError  # noqa: E402
from mltswitch.training.job import Job, make_job  # noqa: E402
from mltswitch.training.pytorch.forward import MltForward  # noqa: E402
from mltswitch.training.pytorch.layout import layers_of  # noqa: E402
from mltswitch.training.pytorch.returning import bytes_of, come_back, held_of, keep_job, load_bytes, returning  # noqa: E402
from mltswitch.training.pytorch.start import Setup  # noqa: E402
from mltswitch.training.synchronization.bsp import SYNCHRONIZATION  # noqa: E402

pytestmark = pytest.mark.torch


def trained(seed: int, channels: int = 3) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Conv2d(channels, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        model(torch.randn(2, channels, 5, 5)).square().mean().backward()
        optimizer.step()
        schedule.step()
    return model, optimizer, schedule


def setup_of(model: Any, job: Job) -> Setup:
    _, named = layers_of(model, None)
    return Setup(job, SYNCHRONIZATION, 0, named, None, None)


def job_of(model: Any) -> Job:
    layers, _ = layers_of(model, None)
    return make_job(layers, world=3, continues=True)


def test_model_buffers_optimizer_and_what_is_carried_come_from_the_others() -> None:
    (model, optimizer, schedule), other = trained(0), trained(1)
    held = held_of(model, optimizer, {"schedule": schedule})
    load_bytes(bytes_of(held), held_of(other[0], other[1], {"schedule": other[2]}))
    for name, value in model.state_dict().items():
        assert (other[0].state_dict()[name] == value).all()
    assert other[1].param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    assert other[2].state_dict() == schedule.state_dict()
    moments = [(state["exp_avg"], state["step"]) for state in optimizer.state_dict()["state"].values()]
    theirs = [(state["exp_avg"], state["step"]) for state in other[1].state_dict()["state"].values()]
    assert all(
        (one == own).all() and steps == count
        for (one, steps), (own, count) in zip(moments, theirs, strict=True)
    )


class _Odd:
    def state_dict(self) -> dict[str, Any]:
        return {"figure": np.float64(3)}

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError(state)


@pytest.mark.parametrize("data", [b"", b"nonsense", bytes(100)])
def test_what_is_no_state_is_said_in_a_line(data: bytes) -> None:
    with pytest.raises(JobMismatchError, match="state of another rank: does not fit"):
        load_bytes(np.frombuffer(data, np.uint8), held_of(*trained(0)[:2], None))


def test_states_are_tensors_and_plain_numbers() -> None:
    model, optimizer, _ = trained(0)
    held = held_of(model, optimizer, {"odd": _Odd()})
    with pytest.raises(JobMismatchError, match="tensors and plain numbers"):
        load_bytes(bytes_of(held), held)
    with pytest.raises(UserInputError, match=r"carries\.none: is a int"):
        held_of(model, optimizer, {"none": 3})


def test_only_the_same_model_comes_back(tmp_path: Path) -> None:
    meeting, (model, optimizer, _) = f"file://{tmp_path}/meeting", trained(0)
    job, held = job_of(model), held_of(model, optimizer, None)
    assert returning(meeting, 2) is None
    keep_job(job, meeting, setup_of(model, job).named, held)
    assert returning(meeting, 2) is None, "not in the file"
    (tmp_path / "meeting").write_text('{"rank":2,"world":3,"name":"h-2","endpoint":"127.0.0.1:1"}\n')
    assert returning(meeting, 2) == 2

    def back(other: Any, mine: Any) -> Job:
        return come_back(meeting, {}, lambda options: setup_of(other, job), mine)[1]

    assert back(model, held) == job
    turned = trained(0)[0].to(memory_format=torch.channels_last)
    with pytest.raises(UserInputError, match=r"model: has '0\.weight'"):
        back(turned, held)
    with pytest.raises(UserInputError, match=r"model: has '0\.weight'"):
        back(trained(0)[0].to(torch.bfloat16), held)
    with pytest.raises(UserInputError, match="the other ranks hold model, optimizer, this one model"):
        back(model, held_of(model, None, None))
    (tmp_path / "meeting.mltswitch").write_text("{}")
    with pytest.raises(UserInputError, match=r"meeting\.mltswitch: is no job of this version"):
        back(model, held)
    (tmp_path / "meeting.mltswitch").unlink()
    with pytest.raises(UserInputError, match=r"meeting\.mltswitch: cannot be read"):
        back(model, held)
    with pytest.raises(UserInputError, match="rendezvous: keeps no job"):
        come_back("env://", {}, lambda options: setup_of(model, job), held)


def test_forward_passes_that_wait_take_nobody_back() -> None:
    with pytest.raises(UserInputError, match="returns: no rank comes back"):
        MltForward(trained(0)[0], torch.optim.Adam, returns=1)
