"""Who sends what to whom. A workload is one module: a document with `extent` and `flows`, listed in `mix`."""

from typing import Annotated

from pydantic import Field

from mltswitch.network.workloads.background import Background
from mltswitch.network.workloads.base import Extent, Flow, Stage, Step, Work
from mltswitch.network.workloads.incast import Incast
from mltswitch.network.workloads.mix import Mix, Single
from mltswitch.network.workloads.parameter_server import ParameterServer
from mltswitch.network.workloads.permutation import Permutation
from mltswitch.network.workloads.ring import Ring

Workload = Annotated[Single | Mix, Field(discriminator="kind")]

__all__ = [
    "Background",
    "Extent",
    "Flow",
    "Incast",
    "Mix",
    "ParameterServer",
    "Permutation",
    "Ring",
    "Stage",
    "Step",
    "Work",
    "Workload",
]
