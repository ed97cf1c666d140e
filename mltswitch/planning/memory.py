"""What the packet memory of a switch leaves one port, and what bounds a queue there."""

from dataclasses import dataclass
from math import log2
from typing import Final

from mltswitch.capabilities import AlphaLimit, BytesLimit, Capabilities, Limit, Unlimited
from mltswitch.capabilities.hardware import PacketMemory, packet_memory
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan.fabric import Fabric, Memory
from mltswitch.plan.topology_document import PortRole

DEFAULT: Final = "default"
"""Name in the fabric's `memory` that stands for hardware that it does not list."""
BUSY_PART: Final = 4
"""One in so many ports is taken for congested where the fabric does not say."""
STOCK_ALPHA: Final = 8.0
"""Alpha of a lossy queue in the default profile of most boxes (capabilities/hardware.yaml)."""


@dataclass(frozen=True, slots=True)
class PortMemory:
    """Memory of one port."""

    buffer_bytes: int
    """What its queues may hold together where limits are in bytes, else what one congested queue may."""
    pool_bytes: int | None
    congested_queues: int
    limit: AlphaLimit | Unlimited | None
    """Limit of every queue where the device has no bytes; None: limits are in bytes, and chosen."""

    def fixed_limit(self, size_bytes: int) -> Limit:
        """Limit of a queue that is no gradients', for so many bytes where the device has bytes."""
        return BytesLimit(size_bytes) if self.limit is None else self.limit


def port_memory(fabric: Fabric, device: Capabilities, role: PortRole, port_count: int) -> PortMemory:
    """Memory of a port of this role on this device, of which the fabric uses `port_count` ports.

    Where the fabric names a port's buffer, that is what the port gets. Else the shared memory, as the fabric
    or the box's default profile has it, is divided among the ports that are congested at once.

    Raises:
        UserInputError: nobody says how much memory there is, or it adds up to more than the chip has.
        UnsupportedPlanError: the device has no alpha small enough for the buffer.
    """
    override = fabric.ports.overrides.get(role)
    wanted = (override and override.buffer_bytes) or fabric.ports.buffer_bytes
    entry = fabric.memory.get(device.hardware) or fabric.memory.get(DEFAULT)
    known = packet_memory(device.hardware)
    name = device.hardware if device.hardware in fabric.memory else DEFAULT
    if entry is not None and known is not None and entry.total_bytes > known.total_bytes:
        raise UserInputError(
            f"{entry.total_bytes} B are more than {device.hardware} has, {known.total_bytes} B",
            where=f"memory.{name}.total",
        )
    pool_bytes = _pool_bytes(entry, device, known)
    if wanted is not None:
        if pool_bytes is not None and wanted > pool_bytes:
            raise UnsupportedPlanError(
                f"{wanted} B for one port is more than the whole pool of {device.hardware}, {pool_bytes} B",
                where=f"ports.buffer: {role} ports",
            )
        if device.limit.kind == "alpha" and pool_bytes is not None:
            limit = _alpha_within(device, wanted, pool_bytes, role)
            return PortMemory(limit.resting_bytes(pool_bytes), pool_bytes, 1, limit)
        return PortMemory(wanted, None, 1, None if device.limit.kind == "bytes" else Unlimited())
    if pool_bytes is None:
        raise UserInputError(
            f"nobody says how much packet memory {device.hardware} has",
            where="ports.buffer",
            expected=f"ports.buffer, or memory.{device.hardware} with the chip's total",
        )
    box_ports = device.ports[0].count if device.ports else 0
    ports = (entry and entry.ports) or max(box_ports, port_count)
    busy = (entry and entry.busy_ports) or max(1, ports // BUSY_PART)
    if device.limit.kind == "bytes":
        return PortMemory(pool_bytes // ports, None, 1, None)
    alpha = (entry and entry.alpha) or (known and known.alpha) or STOCK_ALPHA
    exponent = int(log2(alpha))
    limit = AlphaLimit(exponent)
    if device.limit.kind == "alpha":
        if exponent not in device.limit.alpha_exponents:
            raise UnsupportedPlanError(
                f"{device.hardware} has no alpha of {alpha:g}",
                where=f"memory.{name}.alpha",
                expected=f"a power of two from {2.0 ** min(device.limit.alpha_exponents):g} to "
                f"{2.0 ** max(device.limit.alpha_exponents):g}",
            )
        return PortMemory(limit.resting_bytes(pool_bytes, busy), pool_bytes, busy, limit)
    return PortMemory(limit.resting_bytes(pool_bytes, busy), pool_bytes, busy, Unlimited())


def _pool_bytes(entry: Memory | None, device: Capabilities, known: PacketMemory | None) -> int | None:
    if entry is not None:
        return entry.pool_bytes
    if device.limit.pool_bytes is not None:
        return device.limit.pool_bytes
    return known.pool_bytes if known is not None else None


def _alpha_within(device: Capabilities, wanted: int, pool_bytes: int, role: PortRole) -> AlphaLimit:
    """The largest alpha, up to the stock one, at which a queue alone stays within the port's buffer."""
    limits = [
        AlphaLimit(exponent)
        for exponent in sorted(device.limit.alpha_exponents)
        if 2.0**exponent <= STOCK_ALPHA
    ]
    within = [limit for limit in limits if limit.resting_bytes(pool_bytes) <= wanted]
    if not within:
        least = limits[0].resting_bytes(pool_bytes)
        raise UnsupportedPlanError(
            f"the least alpha of {device.hardware} lets a queue hold {least} B, more than {wanted} B",
            where=f"ports.buffer: {role} ports",
            expected=f"at least {least} B",
        )
    return within[-1]
