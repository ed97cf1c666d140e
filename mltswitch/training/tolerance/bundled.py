"""Bundled training tasks that a CPU trains in seconds: scikit-learn's digits, textures of CIFAR's shape,
fine-tuning.

Each function returns the fields of a `TrainingTask`; data are the same in each process.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MachineError
from mltswitch.profile import import_torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

DATA_SEED: Final = 20240416
PRETRAINING_BATCH: Final = 64
CLASSES: Final = 10
TEXTURE_SIDE: Final = 32
TEXTURE_IMAGES: Final = 1750
TEXTURE_NOISE: Final = 0.6
"""Standard deviation of a pixel's noise; a texture's amplitude is 1."""


@dataclass(frozen=True)
class _Data:
    """Inputs and labels, training and test."""

    inputs: "Tensor"
    labels: "Tensor"
    test_inputs: "Tensor"
    test_labels: "Tensor"

    def batches(self, size: int, seed: int, rank: int, ranks: int) -> "Iterator[tuple[Tensor, Tensor]]":
        """Endless shuffled batches of a rank's share of the training data."""
        torch = import_torch()
        share = np.arange(rank, len(self.labels), ranks)
        rng = np.random.default_rng([seed, rank])
        while True:
            order = rng.permutation(share)
            for first in range(0, len(order) - size + 1, size):
                chosen = torch.from_numpy(order[first : first + size])
                yield self.inputs[chosen], self.labels[chosen]

    def accuracy(self, model: "Module") -> float:
        """Share of the test data that is recognised."""
        return float((model(self.test_inputs).argmax(1) == self.test_labels).float().mean())


def digits() -> dict[str, Any]:
    """The task of classifying handwritten digits of 8 x 8 pixels (scikit-learn's) by four fully connected
    layers."""
    return _task(_digits(range(CLASSES)), _perceptron, target=0.9, rate=0.03)


def digits_finetune() -> dict[str, Any]:
    """The task of fine-tuning the digits model, pre-trained on 0 to 4, to tell 5 to 9 by a new last layer."""
    state = _pretrained(_digits(range(5)), _perceptron, rounds=400, rate=0.03)
    return _task(_digits(range(5, 10)), _perceptron, target=0.9, rate=0.015, state=state)


def textures() -> dict[str, Any]:
    """The task of classifying noisy gratings of 3 x 32 x 32 pixels (CIFAR's shape) by three convolutions and
    one layer."""
    return _task(_textures(), _convolutions, target=0.8, rate=0.03, evaluate_every=2)


def _task(
    data: _Data,
    make: Any,
    *,
    target: float,
    rate: float,
    evaluate_every: int = 1,
    state: "dict[str, Tensor] | None" = None,
) -> dict[str, Any]:
    torch = import_torch()

    def model() -> "Module":
        made: Module = make(torch.nn)
        if state is not None:
            made.load_state_dict(state, strict=False)
        return made

    def loss(model: "Module", batch: "tuple[Tensor, Tensor]") -> "Tensor":
        inputs, labels = batch
        result: Tensor = torch.nn.functional.cross_entropy(model(inputs), labels)
        return result

    return {
        "model": model,
        "batches": lambda seed, rank, ranks: data.batches(16, seed, rank, ranks),
        "loss": loss,
        "metric": data.accuracy,
        "target": target,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
        "evaluate_every": evaluate_every,
        "most_rounds": 1000,
    }


def _pretrained(data: _Data, make: Any, *, rounds: int, rate: float) -> "dict[str, Tensor]":
    """Parameters after training on one rank, without those of the last layer."""
    torch = import_torch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(DATA_SEED)
        model = make(torch.nn)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        for _, (inputs, labels) in zip(
            range(rounds), data.batches(PRETRAINING_BATCH, DATA_SEED, 0, 1), strict=False
        ):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    state: dict[str, Tensor] = model.state_dict()
    return dict(list(state.items())[:-2])


def _perceptron(nn: Any) -> Any:
    widths = (64, 128, 128, 64, CLASSES)
    layers = [
        layer for inputs, outputs in pairwise(widths)
        for layer in (nn.Linear(inputs, outputs), nn.ReLU())
    ]  # fmt: skip
    return nn.Sequential(*layers[:-1])


def _convolutions(nn: Any) -> Any:
    def block(inputs: int, outputs: int) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16), *block(16, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * 16, CLASSES)
    )


def _digits(classes: range) -> _Data:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MachineError(
            "the digits are scikit-learn's, which is not installed", hint="`pip install 'mltswitch[train]'`"
        ) from None
    images, labels = load_digits(return_X_y=True)
    chosen = np.isin(labels, classes)
    return _split(images[chosen].astype(np.float32) / 16, labels[chosen])


def _textures() -> _Data:
    """Each class is two of ten gratings (of a direction, a wavelength, a colour) in two places by chance."""
    rng = np.random.default_rng(DATA_SEED)
    angles, waves = rng.uniform(0, np.pi, CLASSES), rng.uniform(3, 8, CLASSES)
    colours = rng.normal(size=(CLASSES, 3))
    colours /= np.linalg.norm(colours, axis=1, keepdims=True)
    labels = rng.integers(0, CLASSES, TEXTURE_IMAGES)
    rows, columns = np.mgrid[:TEXTURE_SIDE, :TEXTURE_SIDE]
    images = rng.normal(scale=TEXTURE_NOISE, size=(TEXTURE_IMAGES, 3, TEXTURE_SIDE, TEXTURE_SIDE))
    for number, label in enumerate(labels):
        for grating in (label, (label + 1) % CLASSES):
            along = rows * np.cos(angles[grating]) + columns * np.sin(angles[grating])
            wave = np.sin(2 * np.pi * along / waves[grating] + rng.uniform(0, 2 * np.pi))
            centre = rng.uniform(8, TEXTURE_SIDE - 8, 2)
            distance = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2
            window = np.exp(-distance / (2 * 5.0**2))
            images[number] += 2 * colours[grating][:, None, None] * wave * window
    return _split(images.astype(np.float32), labels)


def _split(inputs: NDArray[np.float32], labels: NDArray[np.int64]) -> _Data:
    """Five sevenths to train, the rest to test, shuffled."""
    torch = import_torch()
    order = np.random.default_rng(DATA_SEED).permutation(len(labels))
    train, test = np.split(order, [5 * len(order) // 7])
    chosen = (inputs[train], labels[train].astype(np.int64), inputs[test], labels[test].astype(np.int64))
    return _Data(*(torch.from_numpy(np.ascontiguousarray(part)) for part in chosen))
