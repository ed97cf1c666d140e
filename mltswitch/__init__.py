"""From a neural network and a switch fabric to queue thresholds that hold on the wire.

docs/python-api.md describes the names that scripts import from here; every other name is private. A name is
loaded when it is asked for, so that importing the package needs no optional package and costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mltswitch.version import __version__ as __version__

if TYPE_CHECKING:
    from mltswitch.app.script import build_plan as build_plan
    from mltswitch.app.script import diff as diff
    from mltswitch.app.script import load_plan as load_plan
    from mltswitch.app.script import push as push
    from mltswitch.app.script import render as render
    from mltswitch.app.script import save_plan as save_plan
    from mltswitch.app.script import verify as verify
    from mltswitch.errors import MltswitchError as MltswitchError
    from mltswitch.plan import Plan as Plan
    from mltswitch.training.pytorch.hook import MltState as MltState
    from mltswitch.training.pytorch.hook import mlt_hook as mlt_hook

_HOME: Final = {
    "MltState": "mltswitch.training.pytorch.hook",
    "MltswitchError": "mltswitch.errors",
    "Plan": "mltswitch.plan",
    "build_plan": "mltswitch.app.script",
    "diff": "mltswitch.app.script",
    "load_plan": "mltswitch.app.script",
    "mlt_hook": "mltswitch.training.pytorch.hook",
    "push": "mltswitch.app.script",
    "render": "mltswitch.app.script",
    "save_plan": "mltswitch.app.script",
    "verify": "mltswitch.app.script",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise ImportError(f"{name} needs torch: `pip install 'mltswitch[agent,torch]'`") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
