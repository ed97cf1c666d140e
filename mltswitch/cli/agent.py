"""`mltswitch agent`: tensors between training hosts, and what the hosts need for it."""

import click

from mltswitch.cli.agent_bench import bench
from mltswitch.cli.agent_doctor import doctor
from mltswitch.cli.agent_keys import keys
from mltswitch.cli.agent_paths import paths
from mltswitch.cli.agent_recv import recv
from mltswitch.cli.agent_send import send

agent = click.Group(
    "agent",
    commands=(keys, paths, recv, send, bench, doctor),
    help="Send and receive tensors; keys of a job, and the paths between its hosts.",
    epilog="\b\nExamples:\n  mltswitch agent recv -o copy.npy\n"
    "  mltswitch agent send gradients.npy --to receiver=127.0.0.1",
)
