"""The programs of an emulated SONiC switch other than `config`: show, counters, database and file tools."""

import fnmatch
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from switchsim.device import CommandResult, grep, mac_address, pgrep, serial_number
from switchsim.sonic_config import config
from switchsim.sonic_filesystem import FileError
from switchsim.sonic_process import Process, Program, UsageError, failure, options, output
from switchsim.sonic_yang import Database, Entry

_VERSION: Final = """
SONiC Software Version: SONiC.{build}
Distribution: Debian 12
Platform: {platform}
HwSKU: {hwsku}
ASIC: {asic}
ASIC Count: 1
Serial Number: {serial}
"""

UNICAST_QUEUES: Final = 8


def _show(process: Process) -> CommandResult:
    match list(process.arguments):
        case ["runningconfiguration", "all"]:
            return output(process.device.print_running())
        case ["version"]:
            metadata = process.device.config_db.get("DEVICE_METADATA", {}).get("localhost", {})
            asic = "mellanox" if "mlnx" in str(metadata.get("platform")) else "broadcom"
            names = {name: metadata.get(name) for name in ("platform", "hwsku")}
            serial = serial_number(process.device.name)
            return output(_VERSION.format(build=process.device.build, asic=asic, serial=serial, **names))
        case ["queue", "counters" | "wredcounters" as table, "--json"]:
            return output(json.dumps(_queue_counters(process, table), indent=4, sort_keys=True) + "\n")
        case arguments:
            usage = 'Usage: show [OPTIONS] COMMAND [ARGS]...\nTry "show -h" for help.\n'
            return failure(f'{usage}\nError: No such command "{" ".join(arguments)}".\n', 2)


def _queue_counters(process: Process, table: str) -> dict[str, object]:
    """As queuestat and wredstat print them, in text; the emulator carries no packet, so all are 0."""
    fields = {
        "counters": ("totalpacket", "totalbytes", "droppacket", "dropbytes"),
        "wredcounters": ("wreddroppacket", "wreddropbytes", "ecnmarkedpacket", "ecnmarkedbytes"),
    }[table]
    queues = {f"UC{number}": dict.fromkeys(fields, "0") for number in range(UNICAST_QUEUES)}
    time = {"time": datetime.now(UTC).isoformat()}
    return dict.fromkeys(process.device.config_db.get("PORT", {}), time | queues)


def _hostname(process: Process) -> CommandResult:
    metadata = process.device.config_db.get("DEVICE_METADATA", {}).get("localhost", {})
    return output(f"{metadata.get('hostname', 'sonic')}\n")


def _docker(process: Process) -> CommandResult:
    """The daemon in the container lldp, whose `json0` has a list for everything (lldpctl(8))."""
    if not process.is_root:
        return failure("permission denied while trying to connect to the docker API\n")
    if list(process.arguments) != ["exec", "lldp", "lldpctl", "-f", "json0"]:
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


def _sonic_cfggen(process: Process) -> CommandResult:
    if sorted(process.arguments) != ["--print-data", "-d"]:
        return failure("sonic-cfggen: error: only -d --print-data is emulated [emulator]\n", 2)
    return output(process.device.print_data())


def _sonic_db_cli(process: Process) -> CommandResult:
    """Redis commands on CONFIG_DB; as Redis, they check nothing, so a test may break what it likes."""
    match list(process.arguments):
        case ["CONFIG_DB", verb, *operands] if verb.lower() in _REDIS and operands:
            try:
                return output(_redis(process, verb.lower(), operands))
            except UsageError as error:
                return failure(f"(error) ERR {error}\n")
        case _:
            return failure("Invalid database or command [emulator]\n")


_REDIS: Final = frozenset({"hgetall", "hget", "hset", "hdel", "keys", "del", "exists"})


def _redis(process: Process, verb: str, operands: list[str]) -> str:
    key, *rest = operands
    table, _, name = key.partition("|")
    if verb == "keys":
        return _keys(process.device.config_db, key)
    database = {kept: dict(entries) for kept, entries in process.device.config_db.items()}
    fields: Entry = dict(database.get(table, {}).get(name, {}))
    match verb, rest:
        case "hgetall", []:
            exists = name in database.get(table, {})
            return f"{fields or ({'NULL': 'NULL'} if exists else {})}\n"
        case "exists", []:
            return f"{int(name in database.get(table, {}))}\n"
        case "hget", [field]:
            return f"{fields.get(field, '')}\n"
        case "hset", [_, *_] if len(rest) % 2 == 0 and name:
            changed = dict(zip(rest[::2], rest[1::2], strict=True))
            answer = len(changed.keys() - fields.keys())
            fields.update(changed)
        case "hdel", [_, *_]:
            answer = sum(fields.pop(field, None) is not None for field in rest)
        case "del", _:
            answer = sum(_redis(process, verb, [other]) == "1\n" for other in rest)
            database = {kept: dict(entries) for kept, entries in process.device.config_db.items()}
            answer += int(name in database.get(table, {}))
            fields = {}
        case _:
            raise UsageError(f"wrong number of arguments for '{verb}' command")
    _store(database, table, name, fields)
    process.device.config_db = database
    return f"{answer}\n"


def _store(database: Database, table: str, name: str, fields: Entry) -> None:
    """An entry without fields, and a table without entries, do not exist in Redis."""
    entries = database.setdefault(table, {})
    if fields:
        entries[name] = fields
    else:
        entries.pop(name, None)
    if not entries:
        del database[table]


def _keys(database: Database, pattern: str) -> str:
    keys = (f"{table}|{name}" for table, entries in database.items() for name in entries)
    return "".join(f"{key}\n" for key in sorted(keys) if fnmatch.fnmatchcase(key, pattern))


def _counterpoll(process: Process) -> CommandResult:
    """sonic-utilities, counterpoll/main.py: sets one field, as root, and asks no model."""
    match list(process.arguments):
        case ["wredqueue", "enable" | "disable" as status]:
            if not process.is_root:
                return failure("Root privileges are required for this operation\n")
            database = {table: dict(entries) for table, entries in process.device.config_db.items()}
            groups = database.setdefault("FLEX_COUNTER_TABLE", {})
            groups["WRED_ECN_QUEUE"] = {**groups.get("WRED_ECN_QUEUE", {}), "FLEX_COUNTER_STATUS": status}
            process.device.config_db = database
            return CommandResult()
        case arguments:
            usage = "Usage: counterpoll [OPTIONS] COMMAND [ARGS]...\n"
            return failure(f'{usage}\nError: No such command "{" ".join(arguments)}". [emulator]\n', 2)


def _systemd_run(process: Process) -> CommandResult:
    """A command line at a later time, as systemd-run(1) makes a timer for it."""
    device = process.device
    match list(process.arguments):
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


def _systemctl(process: Process) -> CommandResult:
    match list(process.arguments):
        case ["is-active", *units]:
            waits = [unit.removesuffix(".timer") in process.device.timers for unit in units]
            text = "".join("active\n" if each else "inactive\n" for each in waits)
            return CommandResult(text.encode(), status=0 if any(waits) else 3)
        case ["list-units", "--all", "--plain", "--no-legend", "mltswitch-*"]:
            return output("".join(f"{name}.timer loaded active waiting\n" for name in process.device.timers))
        case ["stop", unit] if process.is_root:
            timer = process.device.timers.pop(unit.removesuffix(".timer"), None)
            if timer is None:
                return failure(f"Failed to stop {unit}: Unit {unit} not loaded.\n", 5)
            timer.cancel()
            return CommandResult()
        case _:
            return failure("Access denied\n")


def _cat(process: Process) -> CommandResult:
    contents: list[bytes] = []
    errors = ""
    for path in process.arguments or ["-"]:
        try:
            contents.append(process.read_stdin() if path == "-" else process.read(path))
        except FileError as error:
            errors += f"cat: {path}: {error}\n"
    return CommandResult(b"".join(contents), errors.encode(), 1 if errors else 0)


def _tee(process: Process) -> CommandResult:
    chosen, paths = options(process.arguments, {"-a"}, set())
    contents = process.read_stdin()
    errors = ""
    for path in paths:
        try:
            before = process.read(path) if "-a" in chosen and process.device.files.exists(path) else b""
            process.write(path, before + contents)
        except FileError as error:
            errors += f"tee: {path}: {error}\n"
    return CommandResult(contents, errors.encode(), 1 if errors else 0)


def _grep(process: Process) -> CommandResult:
    options, pattern = process.arguments
    return grep(options, pattern, process.read_stdin().decode())


def _pgrep(process: Process) -> CommandResult:
    match list(process.arguments):
        case ["-af", pattern]:
            return pgrep(process.device.processes, pattern)
        case _:
            return failure("pgrep: only -af is emulated [emulator]\n", 2)


def _lock(program: str) -> Program:
    def run(process: Process) -> CommandResult:
        result = process.device.locks.run([program, *process.arguments])
        return result or failure(f"{program}: not so [emulator]\n", 2)

    return run


def _rm(process: Process) -> CommandResult:
    if (result := process.device.locks.run(["rm", *process.arguments])) is not None:
        return result
    chosen, paths = options(process.arguments, {"-f", "--"}, set())
    errors = ""
    for path in paths:
        try:
            process.device.files.remove(path, as_root=process.is_root)
        except FileError as error:
            if "-f" not in chosen or str(error) != "No such file or directory":
                errors += f"rm: cannot remove '{path}': {error}\n"
    return failure(errors) if errors else CommandResult()


def _echo(process: Process) -> CommandResult:
    words = list(process.arguments)
    end = "" if words[:1] == ["-n"] else "\n"
    return output(" ".join(words if end else words[1:]) + end)


def _true(_process: Process) -> CommandResult:
    return CommandResult()


def _false(_process: Process) -> CommandResult:
    return CommandResult(status=1)


PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        "show": _show,
        "hostname": _hostname,
        "config": config,
        "docker": _docker,
        "counterpoll": _counterpoll,
        "sonic-cfggen": _sonic_cfggen,
        "sonic-db-cli": _sonic_db_cli,
        "cat": _cat,
        "systemctl": _systemctl,
        "systemd-run": _systemd_run,
        "tee": _tee,
        "rm": _rm,
        "grep": _grep,
        "pgrep": _pgrep,
        **{program: _lock(program) for program in ("date", "ln", "readlink", "test")},
        "echo": _echo,
        "true": _true,
        "false": _false,
    }
)
