"""The benchmark of tagging answers with one flat object, and times what it says."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import agent_tagging
from benchmarks.agent_tagging import MTUS_BYTES, bucket, tag
from mltswitch.hostagent.tagging import POLICIES, AllImportant, ByMagnitude, NoneImportant
from mltswitch.hostagent.tensor import PacketLayout
from mltswitch.wire import ElementType


def test_answers_one_flat_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_tagging, "QUICK", agent_tagging.Effort(1, 400_000))
    result = CliRunner().invoke(agent_tagging.main, ["--quick", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert all(isinstance(figure, float) for figure in found.values())
    for mtu_bytes in MTUS_BYTES:
        for element_type in ElementType:
            suffix = f"{element_type.name.lower()}_mtu{mtu_bytes}"
            ratio = found[f"plain_numpy_{suffix}_ms"] / found[f"magnitude_{suffix}_ms"]
            assert found[f"ratio_to_numpy_{suffix}"] == pytest.approx(ratio)
            assert 0.2 < found[f"important_share_{suffix}"] < 0.8
        assert all(f"{policy}_float32_mtu{mtu_bytes}_ms" in found for policy in (*POLICIES, "function"))
    assert found["zero_missing_ms"] > 0


@pytest.mark.parametrize("element_type", list(ElementType))
def test_every_packet_is_judged(element_type: ElementType) -> None:
    tensor = bucket(element_type, 200_000)
    assert len(tensor.data) == 200_000
    assert np.array_equal(tensor.data, bucket(element_type, 200_000).data)
    layout = PacketLayout.fitting(element_type, tensor.element_count, 56)
    assert layout.packet_count > 2 * agent_tagging.CHUNK_PACKETS
    assert tag(AllImportant(), tensor, layout) == 1
    assert tag(NoneImportant(), tensor, layout) == 0
    assert tag(ByMagnitude(), tensor, layout) == pytest.approx(0.5, abs=0.1)
