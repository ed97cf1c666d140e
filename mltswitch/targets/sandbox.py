"""Where templates of a user run: a sandboxed environment, in a process with limits."""

import json
import os
import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any, Final

from jinja2 import StrictUndefined, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAXIMUM_SECONDS: Final[float] = 20
"""Of one template on one device; our own need less than one for the largest fabric."""
MAXIMUM_MEMORY_BYTES: Final = 512 * 2**20
"""Above what the process holds as it starts."""
MAXIMUM_ANSWER_BYTES: Final = 128 * 2**20
SYNTAX: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "undefined": StrictUndefined,
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
        "autoescape": False,
    }
)
"""How templates are read, mltswitch's own and those of users."""


class UnboundedError(Exception):
    """The work took more time or memory than it may."""


@pass_context
def _as_it_is(_context: Context, value: object) -> object:
    """As if it depended on the context: so Jinja computes no constant early, and each keeps its line."""
    return value


def sandbox() -> ImmutableSandboxedEnvironment:
    """An environment that reads no files, has nothing that gives another text each time, and computes no
    constants while it compiles: that is done where no limits hold."""
    made = ImmutableSandboxedEnvironment(finalize=_as_it_is, optimized=False, **SYNTAX)
    del made.globals["lipsum"]
    del made.filters["random"]
    return made


def bounded(work: Callable[[], Any]) -> Any:
    """What `work` answers (JSON data), computed by a copy of this process that has limits.

    Raises:
        UnboundedError: it took more than MAXIMUM_SECONDS or MAXIMUM_MEMORY_BYTES.
    """
    context = get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sending, work), daemon=True)
    process.start()
    sending.close()
    try:
        if not receiving.poll(MAXIMUM_SECONDS):
            raise UnboundedError(f"did not end within {MAXIMUM_SECONDS} s")
        answer = receiving.recv_bytes(MAXIMUM_ANSWER_BYTES)
    except EOFError:
        raise UnboundedError(
            f"did not end within {MAXIMUM_SECONDS} s and {MAXIMUM_MEMORY_BYTES // 2**20} MiB"
        ) from None
    finally:
        process.kill()
        process.join()
        receiving.close()
    return json.loads(answer)


def _answer(sending: Connection, work: Callable[[], Any]) -> None:
    """The other process: an answer, or an end without one."""
    # Should this process outlive its parent, the kernel ends it.
    seconds = ceil(MAXIMUM_SECONDS) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    _limit_memory()
    with suppress(MemoryError):
        sending.send_bytes(json.dumps(work()).encode())
    # Nothing of the parent's is flushed or ended twice.
    os._exit(0)


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as stream:  # noqa: PTH123  (a file of the kernel)
        held = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MAXIMUM_MEMORY_BYTES,) * 2)
