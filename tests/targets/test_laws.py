"""What must hold for every plan on every hardware of every switch OS."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.targets import target_for, targets
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

COMMENTS = ("!", "#")


@pytest.mark.parametrize("platform", targets())
@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_rendered_reads_back_with_and_without_comments(platform: str, data: st.DataObject) -> None:
    target = target_for(platform)
    plan = data.draw(st.sampled_from(list(target.models.values())).flatmap(plans))
    quantised = target.quantise(plan, data.draw(switch_names(plan)))
    state, capabilities = quantised.state, quantised.capabilities
    files = target.render(state, capabilities)
    assert target.parse(files, capabilities) == state
    bare = {name: "".join(filter(says_something, text.splitlines(True))) for name, text in files.items()}
    assert target.parse(bare, capabilities) == state
    assert target.render(state, capabilities) == files


def says_something(line: str) -> bool:
    """Whether it is neither empty nor a comment."""
    return not line.isspace() and not line.strip().startswith(COMMENTS)
