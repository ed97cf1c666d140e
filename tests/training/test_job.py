"""How a model is cut into pieces, and what no job can have."""

from bisect import bisect_right
from dataclasses import fields, replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.training.job import (
    ELEMENT_BYTES,
    LEAST_PIECE_BYTES,
    PIECE_BYTES,
    Job,
    JobOptions,
    Layer,
    Piece,
    given_options,
    make_job,
)

sizes = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 300_000)), min_size=1, max_size=30).filter(sum)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Job, int]:
    piece_bytes = draw(st.sampled_from([1, 8, 1000, LEAST_PIECE_BYTES, 100_000, PIECE_BYTES]))
    layers = [(f"layer-{number}", size) for number, size in enumerate(draw(sizes))]
    if piece_bytes < LEAST_PIECE_BYTES:  # a few thousand pieces are enough
        layers = [(name, size % (50 * piece_bytes)) for name, size in layers] + [("last", 1)]
    job = make_job(
        layers,
        world=draw(st.integers(1, 20)),
        servers=draw(st.integers(0, 5)),
        element_type=draw(st.sampled_from([*ELEMENT_BYTES])),
        piece_bytes=piece_bytes,
    )
    return job, piece_bytes


@settings(max_examples=30)
@given(jobs())
def test_pieces_cover_every_element_once_in_order(cut: tuple[Job, int]) -> None:
    job, _ = cut
    assert [piece.first for piece in job.pieces] == [
        0,
        *(piece.first + piece.count for piece in job.pieces[:-1]),
    ]
    assert job.pieces[-1].first + job.pieces[-1].count == job.elements
    assert all(piece.count for piece in job.pieces)


@settings(max_examples=30)
@given(jobs())
def test_a_piece_has_the_layer_of_its_first_element(cut: tuple[Job, int]) -> None:
    job, _ = cut
    ends = [*accumulate(layer.elements for layer in job.layers)]
    assert [piece.layer for piece in job.pieces] == [bisect_right(ends, piece.first) for piece in job.pieces]


@settings(max_examples=30)
@given(jobs())
def test_pieces_are_neither_too_large_nor_needlessly_small(cut: tuple[Job, int]) -> None:
    job, piece_bytes = cut
    element_bytes = ELEMENT_BYTES[job.element_type]
    most = max(element_bytes, piece_bytes)
    sizes_bytes = [piece.count * element_bytes for piece in job.pieces]
    assert max(sizes_bytes) <= most
    for one, other in pairwise(sizes_bytes):
        assert one + other > min(most, LEAST_PIECE_BYTES) / 2, "neighbours could have shared a piece"


@settings(max_examples=30)
@given(jobs())
def test_every_node_that_adds_has_a_piece_where_the_model_is_large(cut: tuple[Job, int]) -> None:
    job, _ = cut
    adding = job.servers or job.world
    if job.elements * ELEMENT_BYTES[job.element_type] >= adding * LEAST_PIECE_BYTES:
        largest = max(layer.elements for layer in job.layers) * ELEMENT_BYTES[job.element_type]
        assert len(job.pieces) >= (adding if largest <= LEAST_PIECE_BYTES else 1)
        if len(job.layers) == 1:
            assert len(job.pieces) >= adding


@settings(max_examples=30)
@given(jobs())
def test_all_nodes_cut_alike(cut: tuple[Job, int]) -> None:
    job, piece_bytes = cut
    again = make_job(
        [(layer.name, layer.elements) for layer in job.layers],
        world=job.world,
        servers=job.servers,
        element_type=job.element_type,
        piece_bytes=piece_bytes,
    )
    assert again == job
    assert again.fingerprints() == job.fingerprints()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("layers", (Layer("a", 20), Layer("b", 10))),
        ("pieces", (Piece(0, 0, 25), Piece(1, 25, 5))),
        ("world", 4),
        ("servers", 1),
        ("element_type", "float64"),
        ("loss_bound", 0.2),
        ("divisor", "arrived"),
        ("synchronization", "osp"),
        ("topology", "ring"),
        ("transport", "tcp"),
        ("deadline_seconds", 1.0),
    ],
)
def test_fingerprints_tell_the_part_that_differs(part: str, value: Any) -> None:
    job = make_job([("a", 10), ("b", 20)], world=3)
    ours, theirs = job.fingerprints(), replace(job, **{part: value}).fingerprints()
    assert [name for name in ours if ours[name] != theirs[name]] == [part]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"layers": []}, "model"),
        ({"layers": [("a", 0)]}, "model"),
        ({"layers": [("a", 5), ("b", -1)]}, "model"),
        ({"element_type": "float16"}, "element_type"),
        ({"world": 0}, "world"),
        ({"servers": -1}, "world"),
        ({"piece_bytes": 0}, "piece_bytes"),
        ({"loss_bound": 1.0}, "loss_bound"),
        ({"loss_bound": float("nan")}, "loss_bound"),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"deadline_seconds": float("inf")}, "deadline_seconds"),
        ({"divisor": "none"}, "divisor"),
    ],
)
def test_what_no_job_can_have_is_refused(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(UserInputError) as raised:
        make_job(**{"layers": [("a", 1)], "world": 1, **fields})
    assert raised.value.where == where


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"layers": (Layer("a", 1 << 40),)}, "model"),
        ({"layers": (Layer("a", -5), Layer("b", 35))}, "model"),
        ({"element_type": "float8"}, "element_type"),
        ({"wire_type": "float16"}, "wire_type"),
        ({"wire_type": "bfloat16", "element_type": "float64"}, "wire_type"),
        ({"world": 0}, "world"),
        ({"deadline_seconds": 0.0}, "deadline_seconds"),
        ({"pieces": ()}, "pieces"),
        ({"pieces": (Piece(0, 0, 1 << 40),)}, "pieces"),
        ({"pieces": (Piece(0, 0, 31), Piece(0, 31, -1))}, "pieces"),
        ({"pieces": (Piece(0, 5, 30),)}, "pieces"),
    ],
)
def test_what_another_node_tells_is_a_job(change: dict[str, Any], where: str) -> None:
    """A server allocates by it."""
    with pytest.raises(UserInputError) as raised:
        replace(make_job([("a", 10), ("b", 20)], world=3), **change)
    assert raised.value.where == where


@pytest.mark.parametrize("settings", ["abc", {"share": object()}, {"share": {1}}])
def test_settings_are_plain_data(settings: Any) -> None:
    with pytest.raises(UserInputError, match="settings: "):
        make_job([("a", 10)], world=2, settings=settings)


def test_a_job_has_not_too_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltswitch.training.job.MOST_PIECES", 3)
    make_job([("a", 30)], world=2, piece_bytes=40)
    with pytest.raises(UserInputError, match=r"piece_bytes: 4 pieces \(expected 3 at most\)"):
        make_job([("a", 40)], world=2, piece_bytes=40)


@pytest.mark.parametrize(
    ("link_bps", "pieces"), [(None, 4), (1e12, 4), (2e8, 4), (1e8, 8), (3e7, 16), (1e6, 16)]
)
def test_slow_links_get_more_pieces(link_bps: float | None, pieces: int) -> None:
    """8 Mbit for each of two roots, which each have 4 to 16 pieces: one takes 10 ms at least."""
    job = make_job([("a", 500_000)], world=2, link_bps=link_bps)
    assert [piece.count for piece in job.pieces] == [500_000 // (2 * pieces)] * 2 * pieces


def test_options_of_a_program_are_fields_of_the_job() -> None:
    assert JobOptions.__annotations__.keys() <= {field.name for field in fields(Job)} | {"piece_bytes"}
    assert given_options({"check_every": None, "topology": "tree"}) == {"topology": "tree"}
    with pytest.raises(TypeError, match="'piece_byte'"):
        given_options({"piece_byte": 4096})
