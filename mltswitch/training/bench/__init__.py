"""A benchmark: trains a small model by several workers over a network on one machine, by gloo and the host
agent."""

from mltswitch.training.bench.results import GRADIENT_DSCP, Case, CaseResult, Contender, Method
from mltswitch.training.bench.run import Network, Settings, Team, WorkerProcess, running_team
from mltswitch.training.bench.tasks import TASKS, load_bench_task

__all__ = [
    "GRADIENT_DSCP",
    "TASKS",
    "Case",
    "CaseResult",
    "Contender",
    "Method",
    "Network",
    "Settings",
    "Team",
    "WorkerProcess",
    "load_bench_task",
    "running_team",
]
