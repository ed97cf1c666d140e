"""OSP's member: what it ranks, how much it leaves for later, and what ranks agree on."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Network, axes_of
from mltswitch.training.errors import JobMismatchError
from mltswitch.training.job import BALLOT_FIGURES, Job, make_job
from mltswitch.training.synchronization.osp import OspMember, OspSettings, Size, Slices
from mltswitch.training.virtual import Report, VirtualJob

LAYERS = [("front", 1000), ("big", 7400), ("back", 1600)]
MODEL_BYTES = 40_000


def job_of(*, world: int = 2, piece_bytes: int = 4000, **settings: Any) -> Job:
    return make_job(LAYERS, world=world, synchronization="osp", settings=settings, piece_bytes=piece_bytes)


def size_of(**settings: Any) -> Size:
    return Size(job_of(), OspSettings(**settings))


def epochs(size: Size, losses: Sequence[float], *, late: float = 0.0, exchanging: float = 4.0) -> list[float]:
    """Share of the model that is later after each of these epochs of one step, of a second's computing."""
    found = []
    for loss in losses:
        size.counted(loss, 1.0, exchanging, late)
        found.append(size.bytes / MODEL_BYTES)
    return found


def test_the_size_grows_as_the_loss_falls() -> None:
    """Algorithm 1: nothing in the first epoch, and all that fits when the loss is 0."""
    size = size_of(steps_per_epoch=1)
    assert size.bytes == 0
    assert epochs(size, [2.0, 1.5, 1.0, 0.5, 0.0]) == pytest.approx([0, 0.25 / 4, 0.5 / 4, 0.75 / 4, 1 / 4])


def test_the_size_is_bounded_by_a_share_of_the_model() -> None:
    assert epochs(size_of(steps_per_epoch=1, growth="none"), [1.0], exchanging=0.5) == [0.8]
    size = size_of(steps_per_epoch=1, growth="none", most_share=0.3)
    assert epochs(size, [1.0], exchanging=0.5) == pytest.approx([0.3])
    assert size_of(share=0.25).bytes == MODEL_BYTES / 4


def test_less_is_later_after_an_ics_was_late() -> None:
    size = size_of(steps_per_epoch=100, growth="none")
    epochs(size, [1.0] * 100)
    before = size.bytes
    epochs(size, [1.0], late=1.0)
    assert size.bytes == pytest.approx(0.97 * before)
    epochs(size, [1.0] * 99)
    assert size.bytes == pytest.approx(0.97 * 1.02 * before), "and a little more in each epoch"


def test_equation_5() -> None:
    size = size_of(steps_per_epoch=1, growth="none", tuning="paper", link_bps=1e5, loss_ratio=0.1)
    assert epochs(size, [1.0]) == pytest.approx([1e5 * 1.1 / 8 * 1.0 / 2 / MODEL_BYTES])


@pytest.mark.parametrize(
    ("losses", "said", "shares"),
    [
        ([2.0, 1.0, 3.0], "has risen from 2 to 3", [0, 0.125, 0.125]),
        ([2.0, 1.0, np.nan], "is nan", [0, 0.125, 0.125]),
        ([0.0, 1.0, 0.5], "is 0", [0, 0, 0.125]),
        ([np.inf, 1.0, 0.5], "is inf", [0, 0, 0.125]),
        ([2.0, 4.0, -9.0], "has risen", [0, 0, 0.25]),
    ],
)
def test_strange_losses_change_nothing_and_are_said(
    losses: list[float], said: str, shares: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert epochs(size_of(steps_per_epoch=1), losses) == pytest.approx(shares)
    assert [said in record.getMessage() for record in caplog.records] == [True]


def test_slices_are_runs_of_pieces_of_one_layer() -> None:
    job = job_of()
    whole = Slices(job, None)
    assert [sum(job.pieces[piece].count for piece in members) for members in whole.members] == [
        1000,
        7400,
        1600,
    ]
    fine = Slices(job, 8000)
    assert max(fine.elements) <= 2000
    assert [piece for members in fine.members for piece in members] == [*range(len(job.pieces))]
    assert Slices(job, 1).members == [[piece] for piece in range(len(job.pieces))]


def test_the_least_important_go_first_and_what_does_not_fit_is_skipped() -> None:
    job = job_of(piece_bytes=1 << 20)
    slices = Slices(job, None)
    assert [piece.layer for piece in job.pieces] == [0, 1, 1, 2]
    for importance, most, by_mean, expected in (
        ([3.0, 1.0, 2.0], 0.8, False, [1]),
        ([3.0, 1.0, 2.0], 0.5, False, [2, 0]),  # the least important is too large
        ([1.0, 7.0, 1.0], 0.1, False, [0]),  # a tie goes to the front
        ([1.0, 0.7, 0.8], 0.8, True, [1]),
        ([1.0, 7.0, 1.5], 0.8, True, [2, 0]),
        ([1.0, 1.0, 1.0], 0.0, False, []),
        ([1.0, 1.0, 1.0], 1.0, False, [0, 1, 2]),
    ):
        front, big, back = importance
        of_pieces = [front, big / 2, big / 2, back]
        assert slices.least_important(of_pieces, most * MODEL_BYTES, by_mean=by_mean) == expected


@given(
    st.lists(st.floats(0, 10), min_size=12, max_size=12),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from([None, 1, 4000, 9000]),
)
def test_what_is_chosen_fits_and_nothing_less_important_would(
    importance: list[float], share: float, by_mean: bool, slice_bytes: int | None
) -> None:
    job = job_of(piece_bytes=4000)
    slices = Slices(job, slice_bytes)
    chosen = slices.least_important((importance * 2)[: len(job.pieces)], share * MODEL_BYTES, by_mean=by_mean)
    taken = sum(slices.elements[number] for number in chosen)
    assert 4 * taken <= share * MODEL_BYTES
    left = {*range(len(slices.elements))} - {*chosen}
    assert all(4 * (taken + slices.elements[number]) > share * MODEL_BYTES for number in left)


def run(virtual: VirtualJob, steps: int = 8, **options: Any) -> Report:
    """With importance that rises with the pieces, told by each rank for its share."""
    job = virtual.job

    def gradients(rank: int, step: int) -> Any:
        member = virtual.nodes[rank].member
        assert member is not None
        member.weighed({piece: 1.0 + piece for piece in range(rank, len(job.pieces), job.world)})
        return np.ones(job.elements) * (rank + 1)

    return virtual.run(steps, gradients, lambda rank, step: 0.1, **options)


@pytest.mark.parametrize("topology", ["star", "ring"])
def test_ranks_tune_alike_until_an_ics_fills_their_computing(topology: str) -> None:
    """What fits is computing's share of the exchange, by the times that the ranks measure."""
    job = make_job(
        [(f"layer-{number}", 20_000) for number in range(10)],
        world=4,
        synchronization="osp",
        topology=topology,
        settings={"growth": "none", "steps_per_epoch": 3, "slice_bytes": 1},
        piece_bytes=4_000,
    )
    virtual = VirtualJob(job, Network(6e7, 1e-5), backward_share=0)
    report = run(virtual, 12)
    members = [node.member for node in virtual.nodes]
    later = [member.later(11) for member in members if isinstance(member, OspMember)]
    assert not report.errors
    assert len({*later}) == 1
    exchange = report.step_seconds[1] - 0.1
    share = sum(job.pieces[piece].count for piece in later[0]) / job.elements
    bound = {"star": 0.01, "ring": 0.1}[topology]
    assert share == pytest.approx(min(0.8, 0.1 / exchange), abs=bound)
    assert report.step_seconds[10] == pytest.approx(0.1 + (1 - share) * exchange, rel=2 * bound)


def test_a_rank_that_ranks_otherwise_is_named() -> None:
    job = job_of(world=3, share=0.5, slice_bytes=1)
    virtual = VirtualJob(job, Network(1e9, 1e-5))
    odd = virtual.nodes[1].member
    assert isinstance(odd, OspMember)
    odd.restore({**odd.state(), "importance": [1.0] * len(job.pieces)})
    report = run(virtual)
    assert {type(error) for error in report.errors.values()} == {JobMismatchError}
    assert report.errors[0].where == report.errors[2].where == "rank 1"
    assert "ranked other pieces as unimportant in step 0 than rank" in str(report.errors[0])
    assert max(report.failed_seconds.values()) < 1


def test_a_slow_ics_holds_the_next_step_up_or_is_carried() -> None:
    seconds = {}
    for late in ("wait", "carry"):
        job = job_of(share=0.8, slice_bytes=1, late=late)
        virtual = VirtualJob(job, Network(1.2e6, 1e-5), backward_share=0)
        report = run(virtual, 9)
        assert not report.errors
        seconds[late] = report.step_seconds[4]
        for step in range(9):
            assert np.array_equal(report.results[0, step], np.full(job.elements, 1.5))
    exchange = 2 * MODEL_BYTES / 2 * 8 / 1.2e6
    assert seconds["wait"] == pytest.approx(exchange, rel=0.25), "the link is never idle"
    assert seconds["carry"] == pytest.approx(exchange, rel=0.25)


def test_nan_of_one_rank_is_told_to_all() -> None:
    """Its piece comes later, so that other ranks would step on."""
    job = job_of(share=0.5, slice_bytes=1)
    virtual = VirtualJob(job, Network(1e9, 1e-5))
    poisoned: list[set[int]] = [set(), set()]

    def gradients(rank: int, step: int) -> Any:
        node = virtual.nodes[rank]
        poisoned[rank].add(node.ballots.poisoned_step)
        assert node.member is not None
        node.member.weighed({piece: 1.0 + piece for piece in range(rank, len(job.pieces), job.world)})
        own = np.ones(job.elements)
        if (rank, step) == (1, 4):
            own[job.pieces[min(node.member.later(step))].first] = np.nan
        return own

    assert not virtual.run(6, gradients).errors
    assert poisoned == [{-1, 4}, {-1, 4}]


def test_a_state_is_that_of_the_same_job() -> None:
    job = job_of(share=0.5, slice_bytes=1)
    virtual = VirtualJob(job, Network(1e9, 1e-5))
    run(virtual)
    states = [node.member.state() for node in virtual.nodes if node.member is not None]
    for rank, from_rank in ((0, 0), (1, 0), (1, 1)):
        member = OspMember(job, rank, OspSettings(**job.settings))
        member.restore(states[from_rank])
        before = virtual.nodes[rank].member
        assert member.later(0) == (before.later(8) if before else None) != frozenset()
    for wrong in (
        {},
        {**states[0], "importance": [1.0]},
        {**states[0], "own": "x"},
        {**states[0], "size": 3},
    ):
        with pytest.raises(UserInputError, match=r"^state: is "):
            OspMember(job, 0, OspSettings(**job.settings)).restore(wrong)


def test_a_ballot_has_figures_of_ranks_and_pieces() -> None:
    job = job_of(world=3)
    kind, _ = axes_of(job)
    assert len(kind.member(job, 1).vote(0)) == job.ballot.count == BALLOT_FIGURES + 6 + len(job.pieces)


def test_one_rank_has_nothing_to_exchange() -> None:
    with pytest.raises(UserInputError, match=r"synchronization\.osp: has one rank"):
        axes_of(job_of(world=1))
