"""The backend `mlt` of torch.distributed: collectives over host agents, where gradients may lose a little.

    import mltswitch.training.pytorch
    torch.distributed.init_process_group("mlt", pg_options=MltOptions(loss_bound=0.1))

DDP and FSDP need no other change.
"""

from typing import Any, Final

from mltswitch.training.pytorch.options import MltOptions

__all__ = ["MltOptions", "register"]

NAME: Final = "mlt"


def register() -> None:
    """Make `mlt` known to torch.distributed; importing this package does it, too.

    Torch, as it is imported, looks for this function; so it must be there before this package imports torch.
    """
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, pg_options: MltOptions | None) -> Any:
    from mltswitch.training.pytorch.collectives import create  # loads the agent, which only a group needs

    return create(options, pg_options)


register()
