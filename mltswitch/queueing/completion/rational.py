"""Rational approximation of Laplace transforms on a disc of the right half plane.

The transform of a duration, E exp(-s T), is needed where other classes' arrivals probe it: on the disc |s -
centre| <= centre. There it is analytic, so that by the maximum principle an approximation that is good on
the circle is good inside. AAA (Nakatsukasa, Sète, Trefethen 2018, SIAM J. Sci. Comput. 40) finds the poles
from samples on the circle; a least-squares fit then gives each function its own residues. Everything is
symmetric about the real axis, because the transforms are real there; so only the upper half circle is
sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

ComplexArray = npt.NDArray[np.complex128]
FloatArray = npt.NDArray[np.float64]

SAMPLES: Final = 28
NEAREST: Final = 1e-6
"""Smallest angle of the sample points; they are denser near s = 0, where long busy periods matter."""
FURTHEST: Final = 0.985 * np.pi
TOLERANCE: Final = 1e-12
"""Largest error of the approximation at the samples; derivatives are less exact by some digits."""
MOST_PAIRS: Final = 12
FIRST: Final = (2, 8, 14, 20, 26)
"""Indices of the samples that every approximation begins with."""
ROOT_STEPS: Final = 12
SETTLED: Final = 1e-10
LEVEL: Final = 1e-6
"""Relative imaginary part below which a pole counts as real."""


@dataclass(frozen=True, slots=True)
class Rational:
    """A rational function: constant + sum of residues / (s - poles)."""

    constant: float
    poles: ComplexArray
    residues: ComplexArray

    def at(self, points: ComplexArray) -> ComplexArray:
        """The function's values at these points."""
        return np.asarray(self.constant + (self.residues / (points[:, None] - self.poles)).sum(axis=1))


def circle(centre: float) -> ComplexArray:
    """Sample points on the upper half of |s - centre| = centre."""
    angles = np.geomspace(NEAREST, FURTHEST, SAMPLES)
    return np.asarray(centre * (1 - np.exp(-1j * angles)))


def fit(points: ComplexArray, values: Sequence[ComplexArray]) -> tuple[Rational, ...]:
    """One approximation for each row of values, all with the same poles."""
    table = np.array(values)
    centre = np.abs(points).max() / 2
    poles = _poles(points, table)
    # None inside; and one nearer to s = 0 than the samples would stand for what they do not show.
    poles = poles[np.abs(poles - centre) > centre * (1 + NEAREST / 10)]
    # Real poles and conjugate pairs, in real numbers: the result is real on the real axis.
    level = np.abs(poles.imag) < LEVEL * np.abs(poles)
    single, upper = poles[level].real, poles[~level & (poles.imag > 0)]
    here, there = 1 / (points[:, None] - upper), 1 / (points[:, None] - upper.conj())
    columns = [np.ones((len(points), 1)), 1 / (points[:, None] - single), here + there, 1j * (here - there)]
    basis = _stacked(np.concatenate(columns, axis=1))
    scale = np.abs(basis).max(axis=0)
    solution = np.linalg.lstsq(basis / scale, _stacked(table.T), rcond=None)[0] / scale[:, None]
    poles = np.concatenate([single, upper, upper.conj()])
    return tuple(_rational(column, poles, len(single), len(upper)) for column in solution.T)


def _stacked(complex_rows: ComplexArray) -> FloatArray:
    return np.concatenate([complex_rows.real, complex_rows.imag])


def _rational(column: FloatArray, poles: ComplexArray, singles: int, pairs: int) -> Rational:
    real, imaginary = column[1 + singles : 1 + singles + pairs], column[1 + singles + pairs :]
    upper = real + 1j * imaginary
    return Rational(float(column[0]), poles, np.concatenate([column[1 : 1 + singles], upper, upper.conj()]))


def _poles(points: ComplexArray, table: ComplexArray) -> ComplexArray:
    """AAA: take the worst sample for the next support point, until all samples are met."""
    free = np.ones(len(points), dtype=bool)
    support: list[int] = []
    approximation = np.repeat(table.mean(axis=1, keepdims=True), len(points), axis=1)
    weights = nodes = np.zeros(0, dtype=complex)
    while len(support) < MOST_PAIRS:
        error = np.where(free, np.abs(table - approximation).max(axis=0), 0.0)
        worst = int(error.argmax())
        if error[worst] < TOLERANCE:
            break
        support += [worst] if support else FIRST
        free[support] = False
        nodes = points[support]
        upper = 1 / (points[free, None] - nodes)
        lower = 1 / (points[free, None] - nodes.conj())
        weights = _weights(table, support, free, upper, lower)
        values = table[:, support]
        numerator = (values * weights) @ upper.T + (values * weights).conj() @ lower.T
        approximation = table.copy()
        approximation[:, free] = numerator / (upper @ weights + lower @ weights.conj())
    if not support:
        return np.zeros(0, dtype=complex)
    return _roots(np.concatenate([nodes, nodes.conj()]), np.concatenate([weights, weights.conj()]))


def _weights(
    table: ComplexArray,
    support: list[int],
    free: npt.NDArray[np.bool_],
    upper: ComplexArray,
    lower: ComplexArray,
) -> ComplexArray:
    """Barycentric weights of the upper nodes: least singular vector of the Loewner matrix, all real."""
    blocks = []
    for row in table:
        here = (row[free, None] - row[support]) * upper
        there = (row[free, None] - row[support].conj()) * lower
        both = np.concatenate([here + there, 1j * (here - there)], axis=1)
        blocks += [both.real, both.imag]
    vector = np.linalg.svd(np.concatenate(blocks), full_matrices=False)[2][-1]
    count = len(support)
    return np.asarray(vector[:count] + 1j * vector[count:])


def _roots(nodes: ComplexArray, weights: ComplexArray) -> ComplexArray:
    """Roots of sum weights / (z - nodes), the poles: eigenvalues to begin with, then Aberth's method."""
    far = -30 * np.abs(nodes).max()
    shifted = np.outer(np.ones(len(nodes)), weights * (nodes - far)) / weights.sum().real
    roots = np.linalg.eigvals(np.diag(nodes) - shifted)
    roots = np.delete(roots, np.abs(roots - far).argmin())
    # No two guesses alike, and none on a node: the method would divide by zero.
    roots = roots * (1 + 1e-7 * np.exp(2.4j * np.arange(len(roots))))
    for _ in range(ROOT_STEPS):
        inverse = 1 / (roots[:, None] - nodes)
        value, slope = inverse @ weights, -(inverse**2) @ weights
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = 1 / (slope / value + inverse.sum(axis=1))
            gaps = roots[:, None] - roots
            np.fill_diagonal(gaps, np.inf)
            step = newton / (1 - newton * (1 / gaps).sum(axis=1))
        step[~np.isfinite(step)] = 0
        roots = roots - step
        if (np.abs(step) <= SETTLED * np.abs(roots)).all():
            break
    return np.asarray(roots)
