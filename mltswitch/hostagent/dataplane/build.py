"""Builds the compiled data plane: cffi reads dataplane.h, so that no declaration is written twice."""

from pathlib import Path
from typing import Any, Final

from cffi import FFI

_FOLDER: Final = Path(__file__).parent
_ROOT: Final = _FOLDER.parents[2]
"""Where setuptools runs: paths are from there."""
_HEADER: Final = (_FOLDER / "dataplane.h").read_text(encoding="utf-8").splitlines()

ffibuilder: Final[Any] = FFI()
ffibuilder.cdef("\n".join(line for line in _HEADER if not line.startswith("#")))
ffibuilder.set_source(
    "mltswitch.hostagent.dataplane._dataplane",
    '#include "dataplane.h"',
    sources=[
        str(path.relative_to(_ROOT)) for path in sorted(_FOLDER.glob("*.c")) if path.stem != "_dataplane"
    ],
    depends=[str(path.relative_to(_ROOT)) for path in sorted(_FOLDER.glob("*.h"))],
    include_dirs=[str(_FOLDER.relative_to(_ROOT))],
    define_macros=[("_GNU_SOURCE", None)],
    extra_compile_args=["-std=c11", "-O3", "-pthread"],
    extra_link_args=["-pthread"],
    optional=True,  # without a compiler the agent says so; all else works
)
