"""What can go wrong with a training job: each error names the node, and what it did or did not do."""

from typing import ClassVar

from mltswitch.errors import MltswitchError


class TrainingError(MltswitchError):
    """Base of what ends a job on every node; never raised itself."""

    exit_code: ClassVar[int] = 7


class NodeLostError(TrainingError):
    """A rank or a server has died, left, or cannot be reached."""


class NodeLateError(TrainingError):
    """A rank or a server has not done its part of an exchange in time."""


class JobMismatchError(TrainingError):
    """Nodes disagree on the model or on a setting of the job."""
