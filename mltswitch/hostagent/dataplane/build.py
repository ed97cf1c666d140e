"""Builds the compiled data plane: cffi reads dataplane.h, so that no declaration is written twice."""

from pathlib import Path
from typing import Any, Final

from cffi import FFI

_FOLDER: Final = Path(__file__).parent
_ROOT: Final = _FOLDER.parents[2]
MODULE: Final = "mltswitch.hostagent.dataplane._dataplane"


def declarations() -> str:
    """What dataplane.h declares, without the lines of the preprocessor."""
    lines = (_FOLDER / "dataplane.h").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def sources() -> list[str]:
    """The C files, by their paths from the root of the project, where setuptools runs."""
    return [str(path.relative_to(_ROOT)) for path in sorted(_FOLDER.glob("*.c")) if path.stem != "_dataplane"]


def _builder() -> Any:
    builder = FFI()
    builder.cdef(declarations())
    builder.set_source(
        MODULE,
        '#include "dataplane.h"',
        sources=sources(),
        depends=[str(path.relative_to(_ROOT)) for path in sorted(_FOLDER.glob("*.h"))],
        include_dirs=[str(_FOLDER.relative_to(_ROOT))],
        define_macros=[("_GNU_SOURCE", None)],
        extra_compile_args=["-std=c11", "-O3", "-pthread"],
        extra_link_args=["-pthread"],
        optional=True,  # without a compiler the agent says so; all else works
    )
    return builder


ffibuilder: Final = _builder()
