import numpy as np
import pytest

from benchmarks.network_baselines import alone_seconds, incast_of_ndp, played


@pytest.mark.parametrize("size", [100, 1460, 450_000])
def test_a_flow_alone_takes_what_it_is_compared_with(size: int) -> None:
    run = played(3, {"kind": "incast", "senders": 1, "size": size}, "pfabric", 1)
    assert run.flows["fct_seconds"] == pytest.approx(alone_seconds(run), rel=1e-9)
    near = played(1, {"kind": "incast", "senders": 1, "size": size}, "pfabric", 1)
    assert near.flows["fct_seconds"] == pytest.approx(alone_seconds(near), rel=1e-9)
    assert np.all(alone_seconds(near) < alone_seconds(run))


def test_an_incast_of_ndp_is_near_the_limit_and_not_below() -> None:
    assert 1 <= incast_of_ndp(8) < 1.02
