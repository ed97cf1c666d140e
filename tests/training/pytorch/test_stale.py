"""A torch model under bounded staleness: workers end with the same, and what is refused."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mltswitch.errors import UserInputError  # noqa: E402  (torch may be missing)
from mltswitch.training.pytorch.stale import StaleTraining, check_plain  # noqa: E402

WORLD, STEPS, RATE = 3, 15, 0.1


def model_of(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 2))


def batch(rank: int, step: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(8, 10, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


def loss(model: Any, rank: int, step: int) -> Any:
    inputs, labels = batch(rank, step)
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def trained(place: Path, staleness: int) -> list[Any]:
    models = [model_of() for _ in range(WORLD)]

    def worker(rank: int) -> None:
        model, options = models[rank], {"topology_settings": {"in_degree": 1}}
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        where = {"rank": rank, "world": WORLD, "rendezvous": f"file://{place}/meeting"}
        with StaleTraining(model, optimizer, staleness=staleness, **where, **options) as training:
            for step in range(STEPS):
                optimizer.zero_grad()
                loss(model, rank, step).backward()
                training.step()
            training.flush()

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(WORLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy() for model in models]


def test_without_staleness_it_is_sgd_with_the_mean_gradient(tmp_path: Path) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        (sum(loss(model, rank, step) for rank in range(WORLD)) / WORLD).backward()
        optimizer.step()
    expected = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    untrained = torch.nn.utils.parameters_to_vector(model_of().parameters()).detach().numpy()
    assert np.abs(untrained - expected).max() > 0.1
    for values in trained(tmp_path, 0):  # a pull may have what others have pushed since, too
        assert np.allclose(values, expected, atol=1e-3)


def test_with_staleness_all_end_with_the_same(tmp_path: Path) -> None:
    first, *others = trained(tmp_path, 3)
    assert not np.allclose(
        first, torch.nn.utils.parameters_to_vector(model_of().parameters()).detach().numpy()
    )
    for values in others:
        assert np.allclose(values, first, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (torch.optim.Adam, "Adam: its state"),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), "SGD with momentum"),
    ],
)
def test_optimizers_with_a_state_are_refused_by_name(make: Any, name: str) -> None:
    with pytest.raises(UserInputError, match=name):
        check_plain(make(model_of().parameters()))


def test_a_negative_staleness_is_refused() -> None:
    model = model_of()
    with pytest.raises(UserInputError, match="0 or more clocks"):
        StaleTraining(model, torch.optim.SGD(model.parameters(), lr=0.1), staleness=-1)


def test_who_else_changes_parameters_is_told(tmp_path: Path) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    where: Any = {"rank": 0, "world": 1, "rendezvous": f"file://{tmp_path}/meeting"}
    with StaleTraining(model, optimizer, **where) as training:
        loss(model, 0, 0).backward()
        training.step()
        optimizer.step()
        for call in (training.step, training.flush):
            with pytest.raises(UserInputError, match="changed since the last step"):
                call()


def test_parameters_that_do_not_lie_in_order_and_types_that_cannot_be(tmp_path: Path) -> None:
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    where: Any = {"rank": 0, "world": 1, "rendezvous": f"file://{tmp_path}/meeting"}
    with StaleTraining(model, optimizer, **where) as training:
        model(torch.ones(1, 3, 5, 5)).sum().backward()
        training.step()
        training.flush()
    short = torch.nn.Linear(2, 2).bfloat16()
    with pytest.raises(UserInputError, match="bfloat16"):
        StaleTraining(short, torch.optim.SGD(short.parameters(), lr=RATE), **where)
