"""How much memory an object holds: everything reachable from it that is data."""

import gc
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType

import numpy as np

_NOT_DATA = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, CodeType)


def footprint(root: object) -> tuple[int, int]:
    """(objects, bytes), shared ones counted once; what types, modules and functions hold does not count."""
    seen: set[int] = set()
    waiting, objects, size_bytes = [root], 0, 0
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, _NOT_DATA):
            continue
        seen.add(id(item))
        objects += 1
        size_bytes += sys.getsizeof(item)
        if isinstance(item, np.ndarray) and item.base is not None:
            waiting.append(item.base)
        waiting += gc.get_referents(item)
    return objects, size_bytes
