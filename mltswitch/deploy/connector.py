"""Opens the session that a target's devices offer."""

from collections.abc import Iterator
from contextlib import contextmanager

from mltswitch.deploy.session import Session
from mltswitch.deploy.ssh import require_packages, translated
from mltswitch.inventory import Device
from mltswitch.targets import SessionKind, Target


@contextmanager
def connect(device: Device, target: Target) -> Iterator[Session]:
    """An open session with a device, closed afterwards; raises DeviceError.

    A command line is a terminal, whose prompt has to be learnt; a shell gets exec channels, which give exact
    output, standard input and exit status. P4Runtime and gNMI need none of it, and their packages and those
    of SSH are loaded only where a device asks for them.
    """
    if target.session is SessionKind.P4RUNTIME:
        from mltswitch.deploy.p4runtime import open_p4runtime

        with open_p4runtime(device) as p4runtime:
            yield p4runtime
        return
    if target.session is SessionKind.GNMI:
        from mltswitch.deploy.gnmi import open_gnmi

        with open_gnmi(device) as gnmi:
            yield gnmi
        return
    require_packages()
    with translated(device):
        if target.session is SessionKind.SHELL:
            from mltswitch.deploy.shell import open_shell

            with open_shell(device) as shell:
                yield shell
        else:
            from mltswitch.deploy.command_line import open_command_line

            with open_command_line(device, target.dialect) as command_line:
                yield command_line
