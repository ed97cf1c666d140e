"""An emulated SONiC switch: a configuration database behind a small bash.

Stateful and strict: a change that the YANG models, the configuration updater or orchagent refuse has no
effect. `config` needs root (`sudo`, no password).
"""

import fnmatch
import json
import posixpath
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import ClassVar, Final

from switchsim.device import CommandResult, mac_address, serial_number
from switchsim.linux import LinuxDevice, Program, UsageError, failure, output
from switchsim.sonic_config import CHECKPOINT_SUFFIX, CHECKPOINTS, CONFIG_FILE, SonicProcess, config
from switchsim.sonic_defaults import BOXES, DEFAULT_BOX, LANES_PER_PORT, default_database
from switchsim.sonic_orchagent import QUEUES, is_mellanox
from switchsim.sonic_yang import Database, Entry

DEFAULT_RELEASE: Final = "202511"
VERSION_FILE: Final = "/etc/sonic/sonic_version.yml"
_BGP: Final = (
    "Building configuration...\n\nCurrent configuration:\n!\nfrr defaults traditional\nhostname {}\nend\n"
)
_VERSION: Final = """
SONiC Software Version: SONiC.{build}
Distribution: Debian 12
Platform: {platform}
HwSKU: {hwsku}
ASIC: {asic}
ASIC Count: 1
Serial Number: {serial}
"""
_COUNTERS: Final = {
    "counters": ("totalpacket", "totalbytes", "droppacket", "dropbytes"),
    "wredcounters": ("wreddroppacket", "wreddropbytes", "ecnmarkedpacket", "ecnmarkedbytes"),
}


def _metadata(process: SonicProcess) -> Entry:
    return process.device.config_db.get("DEVICE_METADATA", {}).get("localhost", {})


def _show(process: SonicProcess) -> CommandResult:
    device = process.device
    match process.arguments:
        case ["runningconfiguration", "all"]:
            return output(device.print_running())
        case ["version"]:
            asic = "mellanox" if is_mellanox(device.config_db) else "broadcom"
            names = {name: _metadata(process).get(name) for name in ("platform", "hwsku")}
            serial = serial_number(device.name)
            return output(_VERSION.format(build=device.build, asic=asic, serial=serial, **names))
        case ["queue", "counters" | "wredcounters" as table, "--json"]:
            # As queuestat and wredstat print them, in text.
            now = {"time": datetime.now(UTC).isoformat()}
            counters = {port: now | _queue_counters(device, port, _COUNTERS[table]) for port in device.ports}
            return output(json.dumps(counters, indent=4, sort_keys=True) + "\n")
        case arguments:
            usage = 'Usage: show [OPTIONS] COMMAND [ARGS]...\nTry "show -h" for help.\n'
            return failure(f'{usage}\nError: No such command "{" ".join(arguments)}".\n', 2)


def _queue_counters(device: "SonicDevice", port: str, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    counted = [device.counted.get((port, number), {}) for number in range(QUEUES)]
    return {
        f"UC{number}": {name: str(of_queue.get(name, 0)) for name in names}
        for number, of_queue in enumerate(counted)
    }


def _hostname(process: SonicProcess) -> CommandResult:
    return output(f"{_metadata(process).get('hostname', 'sonic')}\n")


def _docker(process: SonicProcess) -> CommandResult:
    """The daemon in the container lldp, whose `json0` has a list for everything (lldpctl(8))."""
    if not process.is_root:
        return failure("permission denied while trying to connect to the docker API\n")
    if process.arguments != ["exec", "lldp", "lldpctl", "-f", "json0"]:
        return failure("docker: only exec lldp lldpctl -f json0 is emulated [emulator]\n")
    entries = [
        {
            "name": port,
            "via": "LLDP",
            "chassis": [{"id": [{"type": "mac", "value": mac_address(system)}], "name": [{"value": system}]}],
            "port": [{"id": [{"type": "ifname", "value": name}], "descr": [{"value": name}]}],
        }
        for port, (system, name) in process.device.neighbours.items()
    ]
    return output(json.dumps({"lldp": [{"interface": entries} if entries else {}]}, indent=2) + "\n")


def _sonic_cfggen(process: SonicProcess) -> CommandResult:
    if sorted(process.arguments) != ["--print-data", "-d"]:
        return failure("sonic-cfggen: error: only -d --print-data is emulated [emulator]\n", 2)
    return output(process.device.print_data())


def _sonic_db_cli(process: SonicProcess) -> CommandResult:
    """Redis commands on CONFIG_DB; as Redis, they check nothing, so a test may break what it likes."""
    match process.arguments:
        case ["CONFIG_DB", verb, *operands] if verb.lower() in _REDIS and operands:
            try:
                return output(_redis(process, verb.lower(), operands))
            except UsageError as error:
                return failure(f"(error) ERR {error}\n")
        case _:
            return failure("Invalid database or command [emulator]\n")


_REDIS: Final = frozenset({"hgetall", "hget", "hset", "hdel", "keys", "del", "exists"})


def _redis(process: SonicProcess, verb: str, operands: list[str]) -> str:
    key, *rest = operands
    stored = {
        f"{table}|{name}": fields
        for table, entries in process.device.config_db.items()
        for name, fields in entries.items()
    }
    fields: Entry = dict(stored.get(key, {}))
    match verb, rest:
        case "keys", _:
            return "".join(f"{each}\n" for each in sorted(stored) if fnmatch.fnmatchcase(each, key))
        case "hgetall", []:
            return f"{fields or ({'NULL': 'NULL'} if key in stored else {})}\n"
        case "exists", []:
            return f"{int(key in stored)}\n"
        case "hget", [field]:
            return f"{fields.get(field, '')}\n"
        case "hset", [_, *_] if len(rest) % 2 == 0 and key.partition("|")[2]:
            answer = len({*rest[::2]} - fields.keys())
            stored[key] = fields | dict(zip(rest[::2], rest[1::2], strict=True))
        case "hdel", [_, *_]:
            answer = sum(fields.pop(field, None) is not None for field in rest)
            stored[key] = fields
        case "del", _:
            answer = sum(stored.pop(each, None) is not None for each in operands)
        case _:
            raise UsageError(f"wrong number of arguments for '{verb}' command")
    if not stored.get(key):  # an entry without fields does not exist in Redis
        stored.pop(key, None)
    database: Database = {}
    for each, kept in stored.items():
        table, _, name = each.partition("|")
        database.setdefault(table, {})[name] = kept
    process.device.config_db = database
    return f"{answer}\n"


def _counterpoll(process: SonicProcess) -> CommandResult:
    """sonic-utilities, counterpoll/main.py: sets one field, as root, and asks no model."""
    match process.arguments:
        case ["wredqueue", "enable" | "disable" as status]:
            if not process.is_root:
                return failure("Root privileges are required for this operation\n")
            _redis(process, "hset", ["FLEX_COUNTER_TABLE|WRED_ECN_QUEUE", "FLEX_COUNTER_STATUS", status])
            return CommandResult()
        case arguments:
            usage = "Usage: counterpoll [OPTIONS] COMMAND [ARGS]...\n"
            return failure(f'{usage}\nError: No such command "{" ".join(arguments)}". [emulator]\n', 2)


def _systemd_run(process: SonicProcess) -> CommandResult:
    """A command line at a later time, as systemd-run(1) makes a timer for it."""
    device = process.device
    match process.arguments:
        case [after, "--timer-property=AccuracySec=1s", unit, "sh", "-c", line] if process.is_root:
            seconds, name = after.removeprefix("--on-active="), unit.removeprefix("--unit=")
            if seconds == after or not seconds.isdigit() or name == unit:
                return failure("Failed to parse arguments [emulator]\n")
        case _:
            return failure("Interactive authentication required.\n")
    if name in device.timers:
        return failure(f"Unit {name}.timer was already loaded or has a fragment file.\n")

    def fire() -> None:
        with device.exclusively():
            if device.timers.pop(name, None) is not None:
                device.execute("root", line)

    device.timers[name] = timer = threading.Timer(int(seconds), fire)
    timer.daemon = True
    timer.start()
    return CommandResult(stderr=f"Running timer as unit: {name}.timer\n".encode())


def _systemctl(process: SonicProcess) -> CommandResult:
    timers = process.device.timers
    match process.arguments:
        case ["is-active", *units]:
            waits = [unit.removesuffix(".timer") in timers for unit in units]
            text = "".join("active\n" if each else "inactive\n" for each in waits)
            return CommandResult(text.encode(), status=0 if any(waits) else 3)
        case ["list-units", "--all", "--plain", "--no-legend", "mltswitch-*"]:
            return output("".join(f"{name}.timer loaded active waiting\n" for name in timers))
        case ["stop", unit] if process.is_root:
            timer = timers.pop(unit.removesuffix(".timer"), None)
            if timer is None:
                return failure(f"Failed to stop {unit}: Unit {unit} not loaded.\n", 5)
            timer.cancel()
            return CommandResult()
        case _:
            return failure("Access denied\n")


class SonicDevice(LinuxDevice):
    """One switch with ports Ethernet0, Ethernet4, …; each change replaces `config_db`, which is what runs."""

    lanes_per_port: ClassVar[int] = LANES_PER_PORT
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {name: {"box": name} for name in BOXES}
    has_releases: ClassVar[bool] = True
    home: ClassVar[str] = "/home/admin"
    root_folders: ClassVar[tuple[str, ...]] = ("/etc/sonic", CHECKPOINTS, "/root")
    programs: ClassVar[Mapping[str, Program]] = MappingProxyType(
        {
            "show": _show,
            "hostname": _hostname,
            "config": config,
            "docker": _docker,
            "counterpoll": _counterpoll,
            "sonic-cfggen": _sonic_cfggen,
            "sonic-db-cli": _sonic_db_cli,
            "systemctl": _systemctl,
            "systemd-run": _systemd_run,
        }
    )

    def __init__(
        self, name: str = "sonic1", ports: int = 16, box: str = DEFAULT_BOX, release: str = DEFAULT_RELEASE
    ) -> None:
        super().__init__(name, ports)
        if box not in BOXES:
            raise ValueError(f"box {box}, expected one of {', '.join(BOXES)}")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", release):
            raise ValueError(f"release {release}, expected for example {DEFAULT_RELEASE}")
        self.build = f"{release}.0-emulator"
        """What it runs, as /etc/sonic/sonic_version.yml names it."""
        self.config_db: Database = default_database(name, ports, box)
        self.files.write(CONFIG_FILE, self.print_data().encode(), as_root=True)
        asic = "mellanox" if is_mellanox(self.config_db) else "broadcom"
        version = f"---\nbuild_version: '{self.build}'\nasic_type: {asic}\n"
        self.files.write(VERSION_FILE, version.encode(), as_root=True)
        self.restarts = 0
        """How often `config reload` restarted the services."""
        self.counted: dict[tuple[str, int], Mapping[str, int]] = {}
        """Port and queue → what `show queue counters` and `show queue wredcounters` tell of it. The emulator
        carries no packet: what nobody writes here is 0."""
        self.timers: dict[str, threading.Timer] = {}
        """Transient units of systemd that wait for their time."""

    @property
    def checkpoints(self) -> list[str]:
        """Names of the checkpoints, sorted."""
        return [
            posixpath.basename(path).removesuffix(CHECKPOINT_SUFFIX) for path in self.files.paths(CHECKPOINTS)
        ]

    @property
    def ports(self) -> Mapping[str, Entry]:
        """The table PORT of the running database: port name → its entry."""
        return MappingProxyType(dict(self.config_db.get("PORT", {})))

    def print_data(self) -> str:
        """The database as `sonic-cfggen -d --print-data` prints it."""
        return json.dumps(self.config_db, indent=4, sort_keys=True) + "\n"

    def print_running(self) -> str:
        """`show runningconfiguration all`: the database, and the routing daemon's configuration as text."""
        running = json.loads(self.print_data()) | {"bgpraw": _BGP.format(self._name)}
        return json.dumps(running, indent=4) + "\n"

    def reboot(self) -> None:
        """Restart the emulated switch with its saved configuration."""
        with self._lock:
            self.config_db = json.loads(self.files.read(CONFIG_FILE))
            self.locks.links.clear()
