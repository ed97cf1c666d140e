"""The cells that the models are judged by are those of the first day."""

from dataclasses import asdict
from hashlib import sha256
from json import dumps

import pytest

from benchmarks.cells import BURSTS, LOADS, QUEUES, Cell, held_out_cells, tuning_cells
from mltswitch.documents import validate
from mltswitch.queueing import Batch, check_problem, mean_burst_packets
from mltswitch.traffic.problem import Problem


def fingerprint(cells: tuple[Cell, ...]) -> str:
    figures = [
        [
            cell.name,
            [
                [offered.load, offered.unimportant_share, asdict(offered.arrivals)["burst_packets"]]
                for offered in cell.traffic
            ],
            [[limits.ecn_threshold_packets, limits.limit_packets] for limits in cell.thresholds],
        ]
        for cell in cells
    ]
    return sha256(dumps(figures).encode()).hexdigest()[:16]


def test_nobody_changed_the_cells() -> None:
    """They were drawn before any model was tuned; whoever changes this line starts the judgement anew."""
    assert fingerprint(tuning_cells()) == "d87532f63da08848"
    assert fingerprint(held_out_cells()) == "cae3c91c97d82a68"


@pytest.mark.parametrize(("cells", "each"), [(tuning_cells(), 3), (held_out_cells(), 1)])
def test_every_stratum_has_its_cells(cells: tuple[Cell, ...], each: int) -> None:
    assert len(cells) == each * len(LOADS) * len(BURSTS) * len(QUEUES)
    for least, most in LOADS:
        within = [cell for cell in cells if least <= cell.load + 1e-5 and cell.load - 1e-5 <= most]
        assert len(within) >= len(cells) // len(LOADS)
    for least, most in QUEUES:
        assert sum(least <= len(cell.traffic) <= most for cell in cells) == len(cells) // len(QUEUES)
    equal = sum(len({offered.arrivals for offered in cell.traffic}) == 1 for cell in cells)
    assert 0.5 <= equal / len(cells) < 0.6
    even = sum(len({offered.load for offered in cell.traffic}) == 1 for cell in cells)
    assert even == len(cells) // 2


def test_the_cells_are_problems_within_the_announced_bounds() -> None:
    cells = tuning_cells() + held_out_cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        check_problem(cell.port, cell.traffic, cell.thresholds)
        assert 2 <= len(cell.traffic) <= 8
        for offered, limits in zip(cell.traffic, cell.thresholds, strict=True):
            assert 0.3 <= offered.unimportant_share <= 0.7
            assert isinstance(offered.arrivals, Batch)
            assert 1 <= offered.arrivals.burst_packets <= 45
            assert limits.ecn_threshold_packets is not None
            assert 8 <= limits.ecn_threshold_packets <= limits.limit_packets <= 512


def test_a_printed_cell_is_the_cell() -> None:
    for cell in tuning_cells():
        problem = validate(cell.as_spec(), Problem, where=cell.name)
        assert problem.port() == cell.port
        assert tuple(queue.thresholds() for queue in problem.queues) == cell.thresholds
        for read, offered in zip(problem.traffic(), cell.traffic, strict=True):
            assert read.load == offered.load
            assert read.unimportant_share == offered.unimportant_share
            assert mean_burst_packets(read.arrivals) == mean_burst_packets(offered.arrivals)
