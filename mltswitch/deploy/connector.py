"""Opens the kind of session that a target's devices offer."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from mltswitch.deploy.session import Session, named
from mltswitch.deploy.ssh import require_packages, translated
from mltswitch.inventory import Device
from mltswitch.targets import SessionKind, Target


@contextmanager
def connect(device: Device, target: Target) -> Iterator[Session]:
    """An open session with a device, closed afterwards; raises DeviceError, which names the device.

    A command line is a terminal, whose prompt has to be learnt; a shell gets exec channels, which give exact
    output, standard input and exit status. P4Runtime and gNMI need none of it. The packages of each are
    loaded only where a device asks for them.
    """
    if not target.session.is_grpc:
        require_packages()
    errors = named if target.session.is_grpc else translated
    with errors(device), _open(device, target) as session:
        yield session


def _open(device: Device, target: Target) -> AbstractContextManager[Session]:
    if target.session is SessionKind.P4RUNTIME:
        from mltswitch.deploy.p4runtime import open_p4runtime

        return open_p4runtime(device)
    if target.session is SessionKind.GNMI:
        from mltswitch.deploy.gnmi import open_gnmi

        return open_gnmi(device)
    if target.session is SessionKind.SHELL:
        from mltswitch.deploy.shell import open_shell

        return open_shell(device)
    from mltswitch.deploy.command_line import open_command_line

    return open_command_line(device, target.dialect)
