"""Random curves, layers and profiles."""

from typing import Any

from hypothesis import strategies as st

from mltswitch.profile import (
    Layer,
    LayerRangeCurve,
    ModelProfile,
    Sensitivity,
    Tensor,
    default_sensitivity,
)

Points = tuple[tuple[float, float], ...]


@st.composite
def points(draw: st.DrawFn) -> Points:
    """Points of a valid curve."""
    ratios = draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True))
    rises = draw(st.lists(st.floats(0, 10), min_size=len(ratios), max_size=len(ratios)))
    rounds, result = 0.0, [(0.0, 0.0)]
    for ratio, rise in zip(sorted(ratios), rises, strict=True):
        rounds += rise
        result.append((ratio / 10**6, rounds))
    return tuple(result)


@st.composite
def layers(draw: st.DrawFn) -> tuple[Layer, ...]:
    """Layers of one or two tensors."""
    shapes = st.lists(st.integers(1, 2000), max_size=3).map(tuple)
    tables = draw(st.lists(st.lists(shapes, min_size=1, max_size=2), min_size=1, max_size=12))
    return tuple(
        Layer(
            name=f"layer{number}",
            tensors=tuple(
                Tensor(name=f"layer{number}.t{k}", shape=shape, element_bytes=draw(st.sampled_from([2, 4])))
                for k, shape in enumerate(table)
            ),
        )
        for number, table in enumerate(tables)
    )


@st.composite
def sensitivities(draw: st.DrawFn, count: int) -> Sensitivity:
    """Curves that somebody could have measured for `count` layers."""
    cuts = sorted(draw(st.sets(st.integers(1, count - 1)))) if count > 1 else []
    ranges = zip([0, *cuts], [*cuts, count], strict=True)
    return Sensitivity(
        is_default=False,
        provenance="made up",
        unimportant_share=draw(st.floats(0.1, 0.9)),
        curves=tuple(
            LayerRangeCurve(
                first_layer=first,
                last_layer=end - 1,
                unimportant=draw(points()),
                important=draw(points()),
            )
            for first, end in ranges
        ),
    )


@st.composite
def profiles(draw: st.DrawFn) -> ModelProfile:
    """Profiles with measured or default curves."""
    made = draw(layers())
    default = default_sensitivity([layer.size_bytes for layer in made])
    return ModelProfile(
        schema="mltswitch/profile/v1",
        name="random",
        layers=made,
        sensitivity=draw(st.just(default) | sensitivities(len(made))),
    )


def document(**changes: Any) -> dict[str, Any]:
    """A small valid profile as plain data, with other values at the top."""
    data: dict[str, Any] = {
        "schema": "mltswitch/profile/v1",
        "name": "small",
        "layers": [
            {"name": "front", "tensors": [{"name": "front.weight", "shape": [10, 10]}]},
            {"name": "back", "tensors": [{"name": "back.weight", "shape": [300]}]},
        ],
        "sensitivity": {
            "is_default": False,
            "provenance": "measured by us",
            "curves": [
                {
                    "first_layer": 0,
                    "last_layer": 1,
                    "unimportant": [[0, 0], [0.2, 0], [0.5, 0.3]],
                    "important": [[0, 0], [0.1, 1]],
                }
            ],
        },
    }
    return data | changes
