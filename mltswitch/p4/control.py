"""Opens a session with a BMv2 switch; only `open_switch` imports the optional packages of P4Runtime."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from mltswitch.errors import MachineError, UserInputError

if TYPE_CHECKING:
    from mltswitch.p4.switch import Switch

TIMEOUT_SECONDS: Final = 10.0
"""Time limit in seconds for one answer of the switch; the largest takes some tenths of a second."""
MAXIMUM_PATH_BYTES: Final = 107
"""The longest path of a Unix socket in bytes (unix(7))."""
_ADDRESS: Final = re.compile(
    r"unix:(?P<path>/[^\0\s]+)|(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\]):(?P<port>[0-9]{1,5})"
)


@contextmanager
def open_switch(
    address: str,
    *,
    device_id: int,
    election_id: int = 1,
    primary: bool = True,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator["Switch"]:
    """A session with a switch at `host:port` or `unix:/path`, as the primary controller, which may write, or
    as a reader.

    Raises:
        UserInputError: the address is invalid.
        MachineError: p4runtime-shell is not installed.
        DeviceError: it cannot be reached, or another controller with at least this election id is primary.
    """
    _check(address)
    try:
        from mltswitch.p4.switch import Switch  # noqa: PLC0415  (an optional package)
    except ImportError as error:
        raise MachineError(
            f"P4Runtime needs the package p4runtime-shell, which cannot be imported: {error}",
            hint="`pip install 'mltswitch[p4]'`",
        ) from None
    switch = Switch(address, device_id=device_id, election_id=election_id, timeout_seconds=timeout_seconds)
    try:
        if primary:
            switch.become_primary()
        yield switch
    finally:
        switch.tear_down()


def _check(address: str) -> None:
    """gRPC guesses a missing port, takes 99999 for 34463, and prints what it makes nothing of."""
    place = _ADDRESS.fullmatch(address)
    if (
        place is None
        or int(place["port"] or 1) not in range(1, 2**16)
        or len((place["path"] or "").encode()) > MAXIMUM_PATH_BYTES
    ):
        raise UserInputError(
            f"is no address of a P4Runtime server: {address!r}",
            expected=f"host:port, [IPv6]:port or unix:/path of at most {MAXIMUM_PATH_BYTES} bytes",
        )
