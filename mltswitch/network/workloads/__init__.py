"""Who sends what to whom. A workload is one module: a document with `extent` and `flows`, listed here."""

from typing import Annotated

from pydantic import Field

from mltswitch.network.workloads.base import Extent, Flow, Stage, Step, Work
from mltswitch.network.workloads.incast import Incast
from mltswitch.network.workloads.parameter_server import ParameterServer
from mltswitch.network.workloads.permutation import Permutation

Workload = Annotated[Incast | Permutation | ParameterServer, Field(discriminator="kind")]

__all__ = ["Extent", "Flow", "Incast", "ParameterServer", "Permutation", "Stage", "Step", "Work", "Workload"]
