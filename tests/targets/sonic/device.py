"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, SwitchState
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import LISTING_TABLES, Database
from switchsim.sonic import SonicDevice

CAPABILITIES = TARGET.hardware(None)


def read(device: SonicDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    answers = {}
    for query in TARGET.queries(wanted):
        result = device.execute("admin", query)
        assert result.status == 0, result
        answers[query] = result.stdout.decode()
    return TARGET.read(answers, wanted, capabilities)


def list_ports(database: Database, ports: tuple[str, ...]) -> None:
    """Joins the entries of ports that are alike to one with a key for all, as older templates write them."""
    for table in LISTING_TABLES:
        for key in list(database.get(table, {})):
            port, bar, rest = key.partition("|")
            entries = [database[table].get(f"{each}{bar}{rest}") for each in ports]
            if port == ports[0] and entries == [database[table][key]] * len(ports):
                database[table][f"{','.join(ports)}{bar}{rest}"] = database[table][key]
                for each in ports:
                    del database[table][f"{each}{bar}{rest}"]


def apply(device: SonicDevice, change: Change) -> None:
    for step in (*change.steps, *change.save):
        result = device.execute("admin", step.command, step.stdin.encode)
        assert result.status == 0, f"{step.command}: {result.stderr.decode()}"
