"""One end of torch's gloo send and receive; benchmarks.agent_goodput starts both.

    python -m benchmarks.agent_gloo send|receive ADDRESS INTERFACE TENSOR_BYTES SECONDS

The sender keeps two tensors on their way. Rank 0 receives, and keeps the store at ADDRESS.
"""

import json
import os
import resource
import sys
import time
from typing import Any, Final

PORT: Final = 29511
WARM_UP_TENSORS: Final = 4
IN_FLIGHT: Final = 2


def cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def stream(distributed: Any, torch: Any, elements: int, count: int, *, sends: bool) -> float:
    """So many tensors one after the other; returns the seconds until the receiver says that it has all."""
    tensors = [torch.randn(elements) for _ in range(IN_FLIGHT)]
    waiting: list[Any] = []
    done = torch.zeros(1)
    started = time.perf_counter()
    for number in range(count):
        tensor = tensors[number % IN_FLIGHT]
        if len(waiting) == IN_FLIGHT:
            waiting.pop(0).wait()
        waiting.append(distributed.isend(tensor, 0) if sends else distributed.irecv(tensor, 1))
    for work in waiting:
        work.wait()
    if sends:
        distributed.recv(done, 0)
    else:
        distributed.send(done, 1)
    return time.perf_counter() - started


def main(arguments: list[str]) -> None:
    """Connect, warm up, agree on a count, measure, print one JSON object."""
    role, address, interface, size_bytes, seconds = arguments
    import torch  # noqa: PLC0415  (an extra)
    from torch import distributed  # noqa: PLC0415  (an extra)

    sends = role == "send"
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    print("starting", flush=True)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{address}:{PORT}", rank=int(sends), world_size=2
    )
    elements = int(size_bytes) // 4
    warm = stream(distributed, torch, elements, WARM_UP_TENSORS, sends=sends)
    count = torch.tensor([max(WARM_UP_TENSORS, int(float(seconds) / warm * WARM_UP_TENSORS))])
    if sends:
        distributed.recv(count, 0)
    else:
        distributed.send(count, 1)
    cpu = cpu_seconds()
    elapsed = stream(distributed, torch, elements, int(count), sends=sends)
    found = {
        "bytes": int(count) * elements * 4,
        "seconds": elapsed,
        "cpu_seconds": cpu_seconds() - cpu,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
