"""The compiled passes (the C files of this folder), where the machine that installed us had a C compiler.

Nothing depends on them: `LIBRARY` is None without, and whoever asks has numpy's way as well. ctypes lets go
of the interpreter's lock during a call.
"""

import ctypes
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import Final

NAME: Final = "_passes"
"""As pyproject.toml calls it."""
OFF: Final = "MLTSWITCH_NATIVE"
"""Environment variable; 0 leaves the compiled passes unused."""
UNWANTED: Final = f"{OFF} is 0"
COMMON_BYTES: Final = 20
"""That all packets of a transfer begin with, flags apart."""

_OF_SUMS: Final = (*2 * (ctypes.c_void_p,), *2 * (ctypes.c_int64,), ctypes.c_void_p)
_FUNCTIONS: Final = {
    "mlt_take": (ctypes.c_int64, (*2 * (ctypes.c_void_p,), ctypes.c_int64, ctypes.c_void_p)),
    "mlt_receive": (ctypes.c_int64, (ctypes.c_int, *2 * (ctypes.c_void_p,))),
    "mlt_controls": (None, (ctypes.c_void_p, *5 * (ctypes.c_int64,), *3 * (ctypes.c_void_p,))),
    "mlt_chunk": (None, (ctypes.c_void_p,)),
    "mlt_stamp": (None, (*3 * (ctypes.c_void_p,), ctypes.c_int64, ctypes.c_uint64)),
    "mlt_messages": (ctypes.c_int64, (ctypes.c_void_p,)),
    "mlt_send": (ctypes.c_int64, (ctypes.c_int, ctypes.c_void_p, *2 * (ctypes.c_int64,))),
    "mlt_send_by_socket": (
        ctypes.c_int64,
        (ctypes.c_void_p, ctypes.c_int64, *2 * (ctypes.c_void_p,), *2 * (ctypes.c_int64,), ctypes.c_void_p),
    ),
    "mlt_sum_float32": (None, _OF_SUMS),
    "mlt_sum_bfloat16": (None, _OF_SUMS),
}


class Grid(ctypes.Structure):
    """struct grid: messages of datagrams of one length."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("tos", ctypes.c_void_p),
        ("arrived_ns", ctypes.c_void_p),
        ("messages", ctypes.c_int64),
        ("message_stride_bytes", ctypes.c_int64),
        ("message_bytes", ctypes.c_int64),
        ("datagram_bytes", ctypes.c_int64),
    )


class FeedbackCounts(ctypes.Structure):
    """struct feedback: arrays of shape (paths,), and what came on no path of ours."""

    _fields_ = (
        ("received", ctypes.c_void_p),
        ("marked", ctypes.c_void_p),
        ("pending", ctypes.c_void_p),
        ("newest_sent_ns", ctypes.c_void_p),
        ("newest_arrived_ns", ctypes.c_void_p),
        ("paths", ctypes.c_int64),
        ("unknown_paths", ctypes.c_int64),
    )


class Transfer(ctypes.Structure):
    """struct transfer: what its packets are known by, where they go, and what has come."""

    _fields_ = (
        ("common", ctypes.c_uint8 * COMMON_BYTES),
        ("feedback", ctypes.POINTER(FeedbackCounts)),
        ("elements", ctypes.c_void_p),
        ("received", ctypes.c_void_p),
        ("important", ctypes.c_void_p),
        ("by_tos", ctypes.c_void_p),
        ("by_path", ctypes.c_void_p),
        ("paths", ctypes.c_int64),
        ("packets", ctypes.c_int64),
        ("elements_per_packet", ctypes.c_int64),
        ("full_bytes", ctypes.c_int64),
        ("last_bytes", ctypes.c_int64),
        ("read", ctypes.c_int64),
        ("different", ctypes.c_int64),
        ("different_important", ctypes.c_int64),
        ("duplicates", ctypes.c_int64),
        ("least_took_ns", ctypes.c_int64),
        ("most_took_ns", ctypes.c_int64),
    )


class Answer(ctypes.Structure):
    """struct answer: an acknowledgement; the number of the connection is the registry's."""

    _fields_ = (
        ("connection", ctypes.c_uint64),
        ("path", ctypes.c_uint64),
        ("arrived_ns", ctypes.c_uint64),
        ("echoed_ns", ctypes.c_uint64),
        ("held_ns", ctypes.c_uint64),
        ("received", ctypes.c_uint64),
        ("marked", ctypes.c_uint64),
    )


class OpenTransfers(ctypes.Structure):
    """struct registry: where packets may be written, and whose acknowledgements are told."""

    _fields_ = (
        ("open", ctypes.c_void_p),
        ("touched", ctypes.c_void_p),
        ("open_count", ctypes.c_int64),
        ("touched_count", ctypes.c_int64),
        ("read", ctypes.c_int64),
        ("datagrams", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("answers", ctypes.c_void_p),
        ("version", ctypes.c_int64),
        ("connections", ctypes.c_int64),
        ("answer_count", ctypes.c_int64),
        ("most_answers", ctypes.c_int64),
    )


class Receiver(ctypes.Structure):
    """struct receiver: memory of the messages of one socket, and what a read has found."""

    _fields_ = (
        ("messages", ctypes.c_void_p),
        ("controls", ctypes.c_void_p),
        ("tos", ctypes.c_void_p),
        ("segments_bytes", ctypes.c_void_p),
        ("arrived_ns", ctypes.c_void_p),
        ("slots", ctypes.c_int64),
        ("words_per_message", ctypes.c_int64),
        ("tos_key", ctypes.c_int64),
        ("segment_key", ctypes.c_int64),
        ("time_key", ctypes.c_int64),
        ("least_messages", ctypes.c_int64),
        ("batch_bytes", ctypes.c_int64),
        ("most_bytes", ctypes.c_int64),
        ("most_messages", ctypes.c_int64),
        ("wanted", ctypes.c_int64),
        ("ahead_ns", ctypes.c_int64),
        ("longest_wait_ns", ctypes.c_int64),
        ("step_ns", ctypes.c_int64),
        ("calls", ctypes.c_int64),
        ("received", ctypes.c_int64),
        ("was_full", ctypes.c_int64),
        ("newest_ns", ctypes.c_int64),
        ("error", ctypes.c_int64),
    )


class ChunkArrays(ctypes.Structure):
    """struct chunk: packets of a tensor, and where their headers go."""

    _fields_ = (
        ("header", ctypes.c_char_p),
        ("sequences", ctypes.c_void_p),
        ("important", ctypes.c_void_p),
        ("headers", ctypes.c_void_p),
        ("offsets_bytes", ctypes.c_void_p),
        ("sizes_bytes", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("burst_bytes", ctypes.c_void_p),
        ("tos", ctypes.c_void_p),
        ("packets", ctypes.c_int64),
        ("mixed_packets", ctypes.c_int64),
        ("important_packets", ctypes.c_int64),
        ("burst_packets", ctypes.c_int64),
        ("overhead_bytes", ctypes.c_int64),
        ("bursts", ctypes.c_int64),
        ("tos_unimportant", ctypes.c_int64),
        ("tos_important", ctypes.c_int64),
        ("elements_per_packet", ctypes.c_int64),
        ("full_bytes", ctypes.c_int64),
        ("last_bytes", ctypes.c_int64),
        ("last_sequence", ctypes.c_int64),
    )


class OutgoingArrays(ctypes.Structure):
    """struct outgoing: bursts, and the structures of sendmmsg(2) that they become."""

    _fields_ = (
        ("headers", ctypes.c_void_p),
        ("elements", ctypes.c_void_p),
        ("tags", ctypes.c_void_p),
        ("offsets_bytes", ctypes.c_void_p),
        ("sizes_bytes", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("paths", ctypes.c_void_p),
        ("tos", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("messages", ctypes.c_void_p),
        ("vectors", ctypes.c_void_p),
        ("controls", ctypes.c_void_p),
        ("packets", ctypes.c_int64),
        ("bursts", ctypes.c_int64),
        ("known_paths", ctypes.c_int64),
        ("elements_bytes", ctypes.c_int64),
        ("tag_bytes", ctypes.c_int64),
        ("most_segments", ctypes.c_int64),
        ("most_payload_bytes", ctypes.c_int64),
    )


SENDING_VERSION: Final = (5, *map(ctypes.sizeof, (ChunkArrays, OutgoingArrays)))
"""As sending.c says it."""
VERSION: Final = (5, *map(ctypes.sizeof, (Grid, FeedbackCounts, Transfer, Answer, OpenTransfers, Receiver)))
"""As receiving.c says it: what was built before it changed is not used."""


def load(folder: Path = Path(__file__).parent) -> tuple[ctypes.CDLL | None, str]:
    """(the library of a folder, "") or (None, why there is none)."""
    if os.environ.get(OFF) == "0":
        return None, UNWANTED
    if sys.byteorder != "little":
        return None, "they are for little-endian machines"
    found = [folder / f"{NAME}{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    file = next((entry for entry in found if entry.exists()), None)
    if file is None:
        return None, "they were not built"
    try:
        library = ctypes.CDLL(str(file))
        for name, version in (("mlt_version", VERSION), ("mlt_sending_version", SENDING_VERSION)):
            if tuple((ctypes.c_int64 * len(version)).in_dll(library, name)) != version:
                return None, "they were built from another version of their source"
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError, ValueError) as error:
        return None, f"they cannot be loaded: {error}"
    return library, ""


LIBRARY, PROBLEM = load()
"""The library, or why there is none."""
