"""SONiC as the laws see it: a patch takes effect as a whole, and a change has few of them."""

import copy
import json
from collections.abc import Iterator, Mapping

from hypothesis import strategies as st

from mltswitch.targets import Change, Step, SwitchState
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import QUEUE_TABLES, Database, Entry, Table, queues_in
from mltswitch.targets.sonic.objects import MAP, port_maps
from switchsim.sonic_config import CONFIG_FILE
from tests.targets.sonic.device import apply, list_ports
from tests.targets.under_test import Enter, SwitchUnderTest

FOREIGN_ROUTE: Table = {"default|192.0.2.0/24": {"nexthop": "192.0.2.1", "ifname": "Ethernet0"}}
FOREIGN: tuple[tuple[str, str, Entry], ...] = (
    ("QUEUE", "Ethernet0|0-2", {"scheduler": "scheduler.0"}),
    ("PORT_QOS_MAP", "Ethernet0", {"pfc_enable": "3,4", "tc_to_queue_map": "AZURE"}),
    ("PORT_QOS_MAP", "Ethernet4", {"dscp_to_tc_map": "AZURE"}),
    ("DSCP_TO_TC_MAP", "MINE", {str(dscp): "1" for dscp in range(64)}),
)


class SonicUnderTest(SwitchUnderTest):
    """A switch that runs SONiC."""

    target = TARGET
    ports = 6
    """Of the largest leaf that `plans` draws: three hosts, three spines."""
    is_atomic = True
    restores_after_others = False

    def ask(self, query: str) -> str:
        result = self.device.execute("admin", query)
        assert result.status == 0, result
        return str(result.stdout.decode())

    def entering(self) -> Enter:
        def enter(step: Step) -> None:
            apply(self.device, Change((step,)))

        return enter

    def paste(self, files: Mapping[str, str], name: str) -> None:
        # The templates of SONiC carve queues by ranges, which no loaded document takes away.
        for table in ("QUEUE", "BUFFER_QUEUE"):
            del self.device.config_db[table]
        self.send([Step("cat | sudo config load -y /dev/stdin", files[name])])

    def configuration(self) -> object:
        return copy.deepcopy(self.device.config_db)

    def is_saved(self) -> bool:
        return bool(json.loads(self.device.files.read(CONFIG_FILE)) == self.device.config_db)

    def others(self, wanted: SwitchState) -> object:
        return dict(foreign(self.device.config_db, wanted))

    def start(self, data: st.DataObject) -> None:
        self.device.config_db["STATIC_ROUTE"] = dict(FOREIGN_ROUTE)

    def disturb(self, data: st.DataObject, wanted: SwitchState) -> None:
        database = self.device.config_db
        if not any(key.startswith("mlt") for key in database.get("WRED_PROFILE", {})):
            for table, key, fields in data.draw(st.lists(st.sampled_from(FOREIGN), unique_by=str)):
                database.setdefault(table, {})[key] = dict(fields)
            if data.draw(st.booleans()):
                list_ports(database, ("Ethernet4", "Ethernet8", "Ethernet20"))
        for route in wanted.routes:
            if data.draw(st.booleans()):
                hop: Entry = {"nexthop": "192.0.2.9", "ifname": "Ethernet0", "distance": "7"}
                database.setdefault("STATIC_ROUTE", {}).setdefault(f"default|{route.prefix}", hop)

    def undo(self, change: Change) -> None:
        [back] = [line for line in change.text.splitlines() if line.startswith("# back to the state")]
        self.configure(back.partition(": ")[2])


def foreign(database: Database, wanted: SwitchState) -> Iterator[tuple[str, object]]:
    """Everything that is not ours: other ports, other queues, other objects, other fields."""
    ours = {(port.name, queue.queue) for port in wanted.ports for queue in port.queues}
    for table, entries in database.items():
        for key, fields in entries.items():
            named, queues = queues_in(key)
            if table in QUEUE_TABLES and named:
                for queue in queues:
                    if (named, queue) not in ours:
                        yield f"{table} {named} {queue}", fields
            elif table == "PORT_QOS_MAP":
                yield f"{table} {key}", {n: v for n, v in fields.items() if n not in port_maps(MAP)}
            elif not key.startswith(("MLT", "mlt", "WRED_ECN_QUEUE")) and (
                table != "STATIC_ROUTE" or key in FOREIGN_ROUTE
            ):
                yield f"{table} {key}", fields
