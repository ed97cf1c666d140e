"""A preloaded `ptrace` for user-mode-linux on processors whose register file outgrew it (AMX).

Kernel 6.1's user-mode-linux keeps 2,696 bytes of extended processor state. Since AMX the host's kernel has
11,008, and PTRACE_SETREGSET refuses anything but the whole of it (EFAULT), so init dies at once. The shim
passes the state on, completed by the initial state of what user-mode-linux does not know. Where the sizes
agree it does nothing.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError

_SOURCE: Final = r"""
typedef unsigned long word;
enum { GETREGSET = 0x4204, SETREGSET = 0x4205, XSTATE = 0x202, LARGEST = 65536, PEEKS = 3 };
/* Offset of XSTATE_BV (Intel SDM 1, 13.4.2), and the components below AMX: x87 ... ZMM, PKRU. */
enum { HEADER = 512, KNOWN = 0x2ff };
struct vector { void *base; word length; };
extern int *__errno_location(void);

static unsigned char whole_state[LARGEST] __attribute__((aligned(64)));
static word whole_length;

static long kernel_ptrace(long request, long pid, void *address, void *data)
{
    register void *fourth __asm__("r10") = data;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(101L), "D"(request), "S"(pid), "d"(address), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

long ptrace(int request, int pid, void *address, void *data)
{
    struct vector *given = data, whole = { whole_state, LARGEST };
    word i, peeked = 0;
    int peeks = request >= 1 && request <= PEEKS;
    long result;

    if (request == SETREGSET && (word)address == XSTATE) {
        /* Once: a fresh child's tiles are in their initial state, which is what stays behind the copy. */
        if (!whole_length && kernel_ptrace(GETREGSET, pid, address, &whole) == 0)
            whole_length = whole.length;
        if (given->length < whole_length) {
            for (i = 0; i < given->length / sizeof(word); i++)
                ((word *)whole_state)[i] = ((word *)given->base)[i];
            *(word *)(whole_state + HEADER) &= KNOWN;
            whole.length = whole_length;
            data = &whole;
        }
    }
    result = kernel_ptrace(request, pid, address, peeks ? (void *)&peeked : data);
    if (result < 0) {
        *__errno_location() = -result;
        return -1;
    }
    return peeks ? (long)peeked : result;
}
"""


def needed() -> bool:
    """Whether this processor has the state that user-mode-linux of kernel 6.1 does not know."""
    return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")


def compiler() -> str | None:
    """A C compiler that is installed."""
    return next((path for name in ("cc", "gcc", "clang", "tcc") if (path := shutil.which(name))), None)


def build(folder: Path) -> Path:
    """Compile the shim into the folder and return it; raises MachineError."""
    command = compiler()
    if command is None:
        raise MachineError("a C compiler is missing", hint="install gcc")
    source, library = folder / "xstate.c", folder / "xstate.so"
    source.write_text(_SOURCE, encoding="utf-8")
    done = subprocess.run(
        [command, "-O2", "-shared", "-fPIC", "-nostdlib", "-o", str(library), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MachineError(f"the ptrace shim does not compile: {done.stderr}", where=command)
    return library
