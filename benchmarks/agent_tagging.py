"""What tagging a gradient bucket of 25 MB costs the sender, one thread.

    python -m benchmarks.agent_tagging [--quick] [--json]

Each figure is the median of several passes over the tensor, as a sender makes them: the policy looks at the
tensor, then judges chunks of 1,024 packets. Time is that of the processor, so that what else runs on the
machine counts only by the caches that it takes. In every round the plain way runs, too: the mean |element|
of each packet in one numpy expression, `np.abs(x.reshape(packets, -1)).mean(axis=1)`, and the same in torch
where it is installed; both without sample and median. numpy has no bfloat16, so its plain way widens it by
its bits first. Packets hold what an MTU of 1500 or 9000 bytes leaves behind IPv4, UDP and the agent header.

    <policy>_<type>_mtu<n>_ms                CPU milliseconds, the look at the tensor included
    plain_numpy_<type>_mtu<n>_ms             the plain way
    ratio_to_numpy_<type>_mtu<n>             plain numpy over `magnitude`: above 1, we are faster
    ratio_to_torch_<type>_mtu<n>             the same, plain torch
    sample_<type>_mtu<n>_ms                  that look alone: means of the sample, and their median
    read_<type>_mtu<n>_ms                    one pass over the same bytes: what the memory alone costs
    important_share_<type>_mtu<n>            of the packets, by magnitude
    bitmap_encode_ms, bitmap_decode_ms       received packets of 25 MB at MTU 1500 as bits and back
    missing_elements_ms, zero_missing_ms     where every tenth packet is missing

The tensor is a bucket of layers whose gradients differ in size: normal numbers, times a factor of its own for
each stretch of 16,384 elements. Policies that do not look at elements are timed for float32 alone.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from statistics import median
from time import thread_time
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mltswitch.hostagent.tagging import POLICIES, ByFunction, ByMagnitude
from mltswitch.hostagent.tensor import (
    PacketLayout,
    TensorView,
    decode_bitmap,
    encode_bitmap,
    missing_elements,
    packet_rows,
    zero_missing,
)
from mltswitch.hostagent.transport.interfaces import ImportancePolicy
from mltswitch.wire import AGENT_HEADER_BYTES, ElementType

TENSOR_BYTES: Final = 25_000_000
CHUNK_PACKETS: Final = 1024
OTHER_HEADERS_BYTES: Final = 28
"""IPv4 and UDP."""
MTUS_BYTES: Final = (1500, 9000)
STRETCH_ELEMENTS: Final = 16_384

Clock = dict[str, list[float]]
"""Key → milliseconds of each pass."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How often, and how much."""

    rounds: int
    tensor_bytes: int


FULL: Final = Effort(15, TENSOR_BYTES)
QUICK: Final = Effort(3, TENSOR_BYTES)


def measure(effort: Effort) -> dict[str, float]:
    """All figures."""
    figures: dict[str, float] = {}
    torch = _torch()
    with threadpool_limits(1):
        for element_type in ElementType:
            tensor = bucket(element_type, effort.tensor_bytes)
            for mtu_bytes in MTUS_BYTES:
                figures |= _measure_type(tensor, mtu_bytes, effort.rounds, torch)
        figures |= _measure_bitmap(effort)
    return figures


def bucket(element_type: ElementType, size_bytes: int) -> TensorView:
    """Gradients of several layers in a row; always the same."""
    random = np.random.default_rng(1)
    count = size_bytes // element_type.size_bytes
    factors = np.exp(random.normal(size=-(-count // STRETCH_ELEMENTS)))
    values = random.standard_normal(count, np.float32) * np.repeat(factors, STRETCH_ELEMENTS)[:count]
    if element_type is ElementType.BFLOAT16:
        elements: NDArray[Any] = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif element_type is ElementType.INT8:
        elements = np.clip(np.rint(10 * values), -128, 127).astype(np.int8)
    else:
        elements = values.astype(element_type.name.lower())
    return TensorView(elements.view(np.uint8), element_type)


def tag(policy: ImportancePolicy, tensor: TensorView, layout: PacketLayout) -> float:
    """One pass as a sender makes it; the share of the packets that are important."""
    marking = policy.mark(tensor, layout)
    important = 0
    for first in range(0, layout.packet_count, CHUNK_PACKETS):
        last = min(first + CHUNK_PACKETS, layout.packet_count)
        important += int(np.count_nonzero(marking.important(first, last)))
    return important / layout.packet_count


def _measure_type(tensor: TensorView, mtu_bytes: int, rounds: int, torch: Any) -> dict[str, float]:
    element_type = tensor.element_type
    suffix = f"{element_type.name.lower()}_mtu{mtu_bytes}"
    payload_bytes = mtu_bytes - OTHER_HEADERS_BYTES - AGENT_HEADER_BYTES
    layout = PacketLayout.fitting(element_type, tensor.element_count, payload_bytes)
    rows = packet_rows(tensor, layout).full
    work: dict[str, Callable[[], object]] = {
        "magnitude": partial(tag, ByMagnitude(), tensor, layout),
        "numpy": partial(_plain_numpy, rows, element_type),
        "sample": partial(ByMagnitude().mark, tensor, layout),
        "read": partial(np.maximum.reduce, tensor.data.view(np.int32), axis=None),
    }
    if torch is not None:
        work["torch"] = partial(_plain_torch, torch, rows, element_type)
    if element_type is ElementType.FLOAT32:
        work |= {
            name: partial(tag, policy(), tensor, layout)
            for name, policy in POLICIES.items()
            if name != "magnitude"
        }
        work["function"] = partial(tag, ByFunction(_above_one), tensor, layout)
    times = _interleaved(work, rounds)
    figures = {
        f"{name}_{suffix}_ms": spent for name, spent in times.items() if name not in ("numpy", "torch")
    }
    for name in ("numpy", "torch"):
        if name in times:
            figures[f"plain_{name}_{suffix}_ms"] = times[name]
            figures[f"ratio_to_{name}_{suffix}"] = times[name] / times["magnitude"]
    figures[f"important_share_{suffix}"] = tag(ByMagnitude(), tensor, layout)
    return figures


def _interleaved(work: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds; one pass of each that does not count, then all of them in turn."""
    clock: Clock = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, each in work.items():
            started = thread_time()
            each()
            if number:
                clock[name].append(1000 * (thread_time() - started))
    return {name: median(spent) for name, spent in clock.items()}


def _plain_numpy(rows: NDArray[Any], element_type: ElementType) -> NDArray[Any]:
    if element_type is ElementType.BFLOAT16:
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    means: NDArray[Any] = np.abs(rows).mean(axis=1)
    return means


def _plain_torch(torch: Any, rows: NDArray[Any], element_type: ElementType) -> object:
    tensor = torch.from_numpy(rows.view(np.int16) if element_type is ElementType.BFLOAT16 else rows)
    if element_type is ElementType.BFLOAT16:
        tensor = tensor.view(torch.bfloat16)
    dtype = torch.float32 if element_type is ElementType.INT8 else None
    return tensor.abs().mean(dim=1, dtype=dtype)


def _above_one(packets: NDArray[Any]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.abs(packets).mean(axis=1) > 1
    return found


def _measure_bitmap(effort: Effort) -> dict[str, float]:
    tensor = bucket(ElementType.FLOAT32, effort.tensor_bytes)
    payload_bytes = MTUS_BYTES[0] - OTHER_HEADERS_BYTES - AGENT_HEADER_BYTES
    layout = PacketLayout.fitting(ElementType.FLOAT32, tensor.element_count, payload_bytes)
    received = np.arange(layout.packet_count) % 10 != 0
    encoded = encode_bitmap(received)
    work: dict[str, Callable[[], object]] = {
        "bitmap_encode_ms": partial(encode_bitmap, received),
        "bitmap_decode_ms": partial(decode_bitmap, encoded, layout.packet_count),
        "missing_elements_ms": partial(missing_elements, received, layout),
        "zero_missing_ms": partial(zero_missing, tensor, received, layout),
    }
    return _interleaved(work, effort.rounds)


def _torch() -> Any:
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(1)
    return torch


@click.command()
@click.option("--quick", is_flag=True, help="Fewer passes.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Tag a bucket of every element type by every policy, and print the figures."""
    figures = measure(QUICK if quick else FULL)
    if not any(key.startswith("ratio_to_torch") for key in figures):
        print("torch is not installed: its figures are left out", file=sys.stderr)
    lines = [f"{key}: {value:.4g}" for key, value in figures.items()]
    click.echo(json.dumps(figures) if as_json else "\n".join(lines))


if __name__ == "__main__":
    main()
