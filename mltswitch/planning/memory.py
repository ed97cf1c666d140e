"""How much of a switch's packet memory one port gets, and what bounds a queue there."""

from dataclasses import dataclass
from math import log2
from typing import Final

from mltswitch.capabilities import AlphaLimit, BytesLimit, Capabilities, Limit, Unlimited
from mltswitch.capabilities.hardware import PacketMemory, packet_memory
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan.fabric import Fabric, Memory
from mltswitch.plan.topology_document import PortRole

DEFAULT: Final = "default"
"""Name in the fabric's `memory` that stands for all hardware not listed there."""
BUSY_PART: Final = 4
"""One in this many of the ports that the fabric uses is assumed congested, where the fabric does not say."""
STOCK_ALPHA: Final = 8.0
"""Alpha of a lossy queue in the default profile of most boxes (capabilities/hardware.yaml)."""


@dataclass(frozen=True, slots=True)
class PortMemory:
    """The packet memory that one port gets."""

    buffer_bytes: int
    """What the port's queues may hold together where limits are in bytes, else what one congested queue may
    hold."""
    pool_bytes: int | None
    congested_queues: int
    crowded_bytes: int | None
    """What one queue gets while all ports that the fabric uses are congested; None: ports share no memory, or
    its size is unknown."""
    limit: AlphaLimit | Unlimited | None
    """Limit of every gradient queue where the device takes no limits in bytes; None: the planner chooses
    limits in bytes."""
    others: AlphaLimit | Unlimited | None
    """Limit of queues without gradients where the device takes no bytes, at least its own default; None:
    limits are in bytes."""

    def fixed_limit(self, size_bytes: int) -> Limit:
        """Limit of a queue without gradients: this many bytes where the device takes bytes, else `others`."""
        return BytesLimit(size_bytes) if self.others is None else self.others


def port_memory(fabric: Fabric, device: Capabilities, role: PortRole, used_ports: int) -> PortMemory:
    """Memory of a port of this role on this device.

    Where the fabric names a port's buffer, that is what the port gets. Else the shared memory, as the fabric
    or the box's default profile has it, is divided among the ports that are congested at once.

    Args:
        fabric: the fabric as its file describes it.
        device: what the switch can do.
        role: the port's role.
        used_ports: the most ports of one switch that the fabric uses.

    Raises:
        UserInputError: nobody says how much memory there is, or it adds up to more than the chip has.
        UnsupportedPlanError: the device has no alpha small enough for the buffer, or another pool.
    """
    override = fabric.ports.overrides.get(role)
    wanted = (override and override.buffer_bytes) or fabric.ports.buffer_bytes
    entry = fabric.memory.get(device.hardware) or fabric.memory.get(DEFAULT)
    known = packet_memory(device.hardware)
    name = device.hardware if device.hardware in fabric.memory else DEFAULT
    pool_bytes = _pool_bytes(entry, device, known, f"memory.{name}")
    stock = _stock_alpha(device, known)
    if wanted is not None:
        if pool_bytes is not None and wanted > pool_bytes:
            raise UnsupportedPlanError(
                f"{wanted} B for one port is more than the whole pool of {device.hardware}, {pool_bytes} B",
                where=f"ports.buffer: {role} ports",
            )
        if device.limit.kind == "alpha" and pool_bytes is not None:
            limit = _alpha_within(device, wanted, pool_bytes, stock, role)
            crowded = limit.resting_bytes(pool_bytes, used_ports)
            return PortMemory(limit.resting_bytes(pool_bytes), pool_bytes, 1, crowded, limit, stock)
        if device.limit.kind == "bytes":
            return PortMemory(wanted, None, 1, None, None, None)
        least = None if pool_bytes is None else min(wanted, stock.resting_bytes(pool_bytes, used_ports))
        return PortMemory(wanted, None, 1, least, Unlimited(), Unlimited())
    if pool_bytes is None:
        raise UserInputError(
            f"nobody says how much packet memory {device.hardware} has",
            where="ports.buffer",
            expected=f"ports.buffer, or memory.{device.hardware} with the chip's total",
        )
    box_ports = device.ports[0].count if device.ports else (known.ports if known else 0)
    ports = (entry and entry.ports) or max(box_ports, used_ports)
    if entry is not None and entry.busy_ports is not None and entry.busy_ports > ports:
        raise UserInputError(
            f"{entry.busy_ports} are more than the {ports} ports", where=f"memory.{name}.busy_ports"
        )
    if device.limit.kind == "bytes":
        return PortMemory(pool_bytes // ports, None, 1, None, None, None)
    busy = (entry and entry.busy_ports) or max(1, used_ports // BUSY_PART)
    limit = stock
    if entry is not None and entry.alpha is not None:
        limit = AlphaLimit(int(log2(entry.alpha)))
    others: AlphaLimit | Unlimited = Unlimited()
    if device.limit.kind == "alpha":
        if limit.exponent not in device.limit.alpha_exponents:
            raise UnsupportedPlanError(
                f"{device.hardware} has no alpha of {2.0**limit.exponent:g}",
                where=f"memory.{name}.alpha",
                expected=f"a power of two from {2.0 ** min(device.limit.alpha_exponents):g} to "
                f"{2.0 ** max(device.limit.alpha_exponents):g}",
            )
        others = AlphaLimit(max(limit.exponent, stock.exponent))
    resting, crowded = (limit.resting_bytes(pool_bytes, count) for count in (busy, max(busy, used_ports)))
    own = limit if device.limit.kind == "alpha" else others
    return PortMemory(resting, pool_bytes, busy, crowded, own, others)


def _stock_alpha(device: Capabilities, known: PacketMemory | None) -> AlphaLimit:
    """What a lossy queue has as delivered, as near as the device has it."""
    exponent = int(log2(known.alpha if known else STOCK_ALPHA))
    if device.limit.kind != "alpha":
        return AlphaLimit(exponent)
    return AlphaLimit(min(device.limit.alpha_exponents, key=lambda each: (abs(each - exponent), each)))


def _pool_bytes(
    entry: Memory | None, device: Capabilities, known: PacketMemory | None, where: str
) -> int | None:
    """What lossy queues share; of a chip in several parts, one part."""
    delivered = device.limit.pool_bytes
    if entry is None:
        return delivered if delivered is not None or known is None else known.pool_bytes
    if known is not None and entry.total_bytes > known.total_bytes:
        raise UserInputError(
            f"{entry.total_bytes} B are more than {device.hardware} has, {known.total_bytes} B",
            where=f"{where}.total",
        )
    described = described_pool_bytes(entry, known)
    if delivered is not None and described < delivered:
        raise UnsupportedPlanError(
            f"leaves {described} B to share; {device.platform} on {device.hardware} has a pool of "
            f"{delivered} B as delivered, which a push expects and does not change",
            where=where,
            hint=f"leave it out, or give memory.{device.hardware} a total from which {delivered} B are left",
        )
    return described if delivered is None else delivered


def described_pool_bytes(entry: Memory, known: PacketMemory | None) -> int:
    """The memory that a queue can share by the fabric's description; on a chip in several parts, that of one
    part."""
    return entry.pool_bytes if known is None else entry.pool_bytes // known.parts


def _alpha_within(
    device: Capabilities, wanted: int, pool_bytes: int, stock: AlphaLimit, role: PortRole
) -> AlphaLimit:
    """The largest alpha, up to the stock one, at which a queue alone stays within the port's buffer."""
    limits = [
        AlphaLimit(exponent)
        for exponent in sorted(device.limit.alpha_exponents)
        if exponent <= stock.exponent
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
