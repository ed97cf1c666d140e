"""What users import: every name is there, nothing is loaded before it is needed."""

import subprocess
import sys
from typing import get_type_hints

import pytest

import mltswitch.hostagent as face
from mltswitch.hostagent import errors
from mltswitch.hostagent.errors import AgentError


def loaded_after(program: str) -> set[str]:
    """Modules of a fresh interpreter."""
    told = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return set(told.stdout.split())


def test_every_name_is_there() -> None:
    for name in face.__all__:
        assert getattr(face, name).__name__ == name
    assert sorted(face.__all__) == face.__all__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = face.Nothing


def test_importing_the_face_loads_nothing() -> None:
    loaded = loaded_after("import mltswitch.hostagent")
    assert not loaded & {"numpy", "pydantic", "asyncio", "torch", "yaml", "_cffi_backend"}


def test_an_agent_needs_neither_torch_nor_what_plans_and_certificates_need() -> None:
    loaded = loaded_after(
        "from mltswitch.hostagent import Agent, AgentConfig; Agent(AgentConfig(listen='127.0.0.1:0')).close()"
    )
    assert "pydantic" in loaded
    assert not loaded & {
        "torch",
        "scipy",
        "cryptography",
        "prometheus_client",
        "pyroute2",
        "netmiko",
        "numba",
    }
    assert not any(name.startswith(("mltswitch.planning", "mltswitch.queueing")) for name in loaded)


def test_all_errors_are_agent_errors_and_have_a_name_for_metrics() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AgentError)
    ]
    assert {kind.__name__ for kind in kinds} <= {*face.__all__}
    assert len({kind("x").result for kind in kinds}) == len(kinds)
    for kind in kinds:
        one = kind("is so", peer="other").of_transfer(3, 4)
        assert (type(one), str(one)) == (kind, "peer other, tensor 3, round 4: is so")
        assert one.exit_code == 6


def test_types_of_the_face_can_be_read() -> None:
    for one in (face.SendRequest, face.ReceiveRequest, face.TransferStatistics, face.Completion):
        assert get_type_hints(one)
