"""`mltswitch agent`: what a training host needs before its jobs send tensors."""

import click

from mltswitch.cli.agent_keys import keys
from mltswitch.cli.agent_paths import paths


@click.group(
    epilog="\b\nExamples:\n  mltswitch agent keys host1 host2 -o job\n"
    "  mltswitch agent paths --plan plan.yaml --from host1 --to host3 --setup"
)
def agent() -> None:
    """Keys of a job, and the paths between its hosts."""


agent.add_command(keys)
agent.add_command(paths)
