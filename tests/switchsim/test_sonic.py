"""SONiC: what the updater takes and refuses, and what its programs answer."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsim import SonicDevice, sonic_yang
from switchsim.device import CommandResult
from switchsim.sonic_yang import Database

WRED = {
    "wred_green_enable": "true",
    "ecn": "ecn_green",
    "green_drop_probability": "100",
    "green_min_threshold": "61440",
    "green_max_threshold": "61440",
}
PROFILE = {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "-2"}
Patch = list[dict[str, Any]]


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: str = "1") -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def wred(name: str = "MLT_Q6", **changed: str) -> dict[str, Any]:
    return add(f"/WRED_PROFILE/{name}", WRED | changed)


def queue(place: str = "Ethernet0|6", **fields: str) -> dict[str, Any]:
    return add(f"/QUEUE/{place}", fields or {"scheduler": "scheduler.0"})


def scheduler(**fields: str) -> dict[str, Any]:
    return add("/SCHEDULER/mlt", fields)


LOCATOR = add("/SRV6_MY_LOCATORS", {"x": {"prefix": "fd00:1:2::"}})
SEGMENT = add("/SRV6_MY_SIDS", {"x|fd00:1:2::/48": {"action": "uN"}})

ACCEPTED: list[Patch] = [
    [],
    [wred()],
    [wred(), scheduler(type="STRICT"), queue(scheduler="mlt", wred_profile="MLT_Q6")],
    [wred(green_max_threshold="2147483647")],
    [scheduler(type="STRICT", meter_type="bytes", cir="1", pir="25000000")],
    [LOCATOR, SEGMENT],
    [add("/FLEX_COUNTER_TABLE/WRED_ECN_QUEUE", {"FLEX_COUNTER_STATUS": "enable"})],
    [queue("Ethernet0|99")],  # wrong, but the models take it
    [add("/BUFFER_QUEUE/Ethernet0|6-5", {"profile": "q_lossy_profile"})],
    [add("/BUFFER_QUEUE/Ethernet0|6", {"profile": "q_lossy_profile"})],
    [add("/BUFFER_PROFILE/mlt_q6", PROFILE)],
    [replace("/BUFFER_PROFILE/q_lossy_profile/dynamic_th")],
    [add("/DSCP_TO_TC_MAP/MLT", {"48": "6", "63": "15"})],
    [add("/PORT_QOS_MAP/Ethernet4/pfc_enable", "")],
    [add("/STATIC_ROUTE", {"default|10.8.1.0/24": {"nexthop": "10.0.1.2", "ifname": "Ethernet4"}})],
    [add("/INTERFACE", {"Ethernet4": {}, "Ethernet4|10.0.1.1/30": {}})],
    [add("/SRV6_SID_LIST", {"x": {"path": "a,b"}})],  # a table without a model
]
REFUSED: list[tuple[Patch, str]] = [
    ([wred(green_max_threshold="61439")], "greater than or equal"),
    ([replace("/WRED_PROFILE/AZURE_LOSSLESS/green_min_threshold", "3000000")], "greater"),
    ([wred(green_drop_probability="101")], "constraint"),
    ([wred(ecn="ecn_ect")], "constraint"),
    ([wred(weight="0")], "Unknown field"),
    ([wred(wred_green_enable="True")], "constraint"),
    ([wred(green_max_threshold="2147483648")], "orchagent"),
    ([wred(wred_red_enable="true", red_min_threshold="1", red_max_threshold="1")], "ecn_green needs"),
    ([wred(ecn="ecn_all")], "yellow needs both thresholds"),
    ([wred(wred_green_enable="false")], "without wred_green_enable"),
    ([wred("MLT.Q6")], "constraint"),
    ([wred("a" * 33)], "constraint"),
    ([queue(wred_profile="MLT_Q6")], "WRED_PROFILE"),
    ([wred(), queue(wred_profile="[WRED_PROFILE|MLT_Q6]")], "WRED_PROFILE"),
    ([queue("Ethernet0,Ethernet4|6")], "PORT"),
    ([queue("Ethernet2|6")], "PORT"),
    ([queue("Ethernet0")], "number of parts"),
    ([scheduler(type="STRICT", priority="7")], "orchagent"),
    ([scheduler(type="DWRR", weight="0")], "constraint"),
    ([scheduler(type="STRICT", weight="10")], "weight requires DWRR"),
    ([scheduler(type="WRR", weight="10")], "WRR is not supported"),
    ([scheduler(type="STRICT", meter_type="packets")], "only bytes/s"),
    ([scheduler(type="STRICT", cir="9", cbs="9")], "burst sizes are not supported"),
    ([scheduler(type="STRICT", cir="9", pir="9", pbs="8", cbs="9")], "pbs must be greater"),
    ([scheduler(type="STRICT", cir="1", pir="24999999")], "below 200 Mbit/s"),
    ([scheduler(type="STRICT", pir="25000000")], "without cir"),
    ([SEGMENT], "SRV6_MY_LOCATORS"),
    ([add("/SRV6_MY_LOCATORS", {"x": {"prefix": "fd00::", "node_len": "90"}})], "128 or less"),
    ([add("/FLEX_COUNTER_TABLE/WRED_ECN_QUEUE", {"BULK_CHUNK_SIZE": "1"})], "Unknown field"),
    ([add("/DSCP_TO_TC_MAP/MLT", {"64": "0"})], "constraint"),
    ([add("/DSCP_TO_TC_MAP/MLT", {"1": "16"})], "constraint"),
    ([add("/TC_TO_QUEUE_MAP/MLT", {"1": "10"})], "constraint"),
    ([add("/TC_TO_QUEUE_MAP/MLT", {"1": "9"})], "orchagent"),
    ([add("/TC_TO_PRIORITY_GROUP_MAP/MLT", {"1": "8"})], "constraint"),
    ([add("/BUFFER_PROFILE/mlt_q6", PROFILE | {"dynamic_th": "8"})], "constraint"),
    ([add("/BUFFER_PROFILE/mlt_q6", {"pool": "egress_lossy_pool"})], "Missing required"),
    ([add("/BUFFER_PROFILE/mlt_q6", PROFILE | {"pool": "nowhere"})], "BUFFER_POOL"),
    ([replace("/BUFFER_PROFILE/q_lossy_profile/size")], "is illegal"),
    (
        [add("/BUFFER_PROFILE/q_lossy_profile", PROFILE | {"size": "9"})],
        "is illegal",
    ),  # the difference counts
    ([replace("/BUFFER_POOL/egress_lossy_pool/size")], "is illegal"),
    ([add("/BUFFER_POOL/mlt", {"type": "egress", "mode": "dynamic"})], "is illegal"),
    ([add("/PORT_QOS_MAP/Ethernet2", {"dscp_to_tc_map": "AZURE"})], "PORT"),
    ([add("/PORT_QOS_MAP/Ethernet0/tc_to_queue_map", "MLT")], "TC_TO_QUEUE_MAP"),
    ([{"op": "remove", "path": "/WRED_PROFILE"}], "an entry of WRED_PROFILE"),
    ([{"op": "remove", "path": "/PORT_QOS_MAP/nowhere"}], "nowhere"),
    ([add("/STATIC_ROUTE", {})], "empty tables"),
    ([add("/STATIC_ROUTE/default|10.8.1.0~124", {"nexthop": "10.0.1.2"})], "STATIC_ROUTE"),  # not there yet
    ([add("/INTERFACE", {"Ethernet4|10.0.1.1/30": {}})], "must exist"),
    ([add("/WRED_PROFILE/MLT_Q6", WRED | {"green_min_threshold": 61440})], "no text"),
    ([{"op": "replace", "path": "", "value": {}}], "empty path"),
    ([wred(), {"op": "test", "path": "/SCHEDULER/scheduler.0/weight", "value": "99"}], "99"),
]


@pytest.fixture
def device() -> SonicDevice:
    return SonicDevice(ports=4)


def run(device: SonicDevice, line: str, document: object = "") -> CommandResult:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return device.execute("admin", line, lambda: text)


def apply_patch(device: SonicDevice, patch: object, flags: str = "") -> CommandResult:
    return run(device, f"sudo config apply-patch {flags} /dev/stdin", patch)


@pytest.mark.parametrize(
    ("box", "pool", "size"),
    [("sn2700", "egress_lossy_pool", "4580864"), ("trident3", "egress_lossless_pool", "32599040")],
)
def test_default_database_is_valid(box: str, pool: str, size: str) -> None:
    database = SonicDevice(ports=32, box=box).config_db
    assert list(sonic_yang.problems(database)) == []
    assert (len(database["PORT"]), database["BUFFER_POOL"][pool]["size"]) == (32, size)
    assert database["BUFFER_POOL"][pool]["mode"] == ("static" if box == "trident3" else "dynamic")


@pytest.mark.parametrize("patch", ACCEPTED)
def test_accepted_patch(device: SonicDevice, patch: Patch) -> None:
    result = apply_patch(device, patch)
    assert (result.status, result.stderr) == (0, b"")
    assert result.stdout.endswith(b"Patch applied successfully.\n")
    for operation in patch:
        table, *rest = operation["path"][1:].split("/")
        assert table in device.config_db
        if len(rest) == 1:
            assert device.config_db[table][rest[0]] == operation["value"]


@pytest.mark.parametrize(("patch", "reason"), REFUSED)
def test_refused_patch_changes_nothing(device: SonicDevice, patch: Patch, reason: str) -> None:
    before = copy.deepcopy(device.config_db)
    result = apply_patch(device, patch)
    assert result.status == 2
    assert result.stderr.startswith(b"Failed to apply patch due to: ")
    assert reason in result.stderr.decode()
    assert b"successfully" not in result.stdout
    assert device.config_db == before


def test_other_boxes_refuse_less() -> None:
    device = SonicDevice(ports=2, box="trident3")
    assert b"ASIC: broadcom" in run(device, "show version").stdout
    assert apply_patch(device, [scheduler(type="STRICT", weight="10")]).status == 0
    crossed = [add("/WRED_PROFILE/X", {"green_min_threshold": "2", "green_max_threshold": "1"})]
    assert apply_patch(device, crossed).status == 2
    with pytest.raises(ValueError, match="box x, expected one of sn2700"):
        SonicDevice(box="x")


def test_dry_run_checks_and_changes_nothing(device: SonicDevice) -> None:
    before = copy.deepcopy(device.config_db)
    result = apply_patch(device, [wred()], "-d -v -f CONFIGDB")
    assert result.stdout.startswith(b"** DRY RUN EXECUTION **\n")
    assert apply_patch(device, [wred(ecn="no")], "-d").status == 2
    assert device.config_db == before


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{}", b"[1]", b'[{"op": "add"}]', b"[" * 10_000, b'[{"op": "x", "path": "/a"}]']
)
def test_no_patch_at_all(device: SonicDevice, text: bytes) -> None:
    assert apply_patch(device, text).status == 2


PARTS = ["WRED_PROFILE", "QUEUE", "PORT", "AZURE_LOSSLESS", "Ethernet0", "alias", "0", "-", "~1", "ecn"]
paths = st.lists(st.sampled_from(PARTS), max_size=4).map(lambda parts: "".join(f"/{part}" for part in parts))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": paths},
    optional={"value": values, "from": paths},
)


@given(st.lists(operations, max_size=4))
def test_any_patch_is_applied_whole_or_not_at_all(patch: Patch) -> None:
    device = SonicDevice(ports=1)
    before = copy.deepcopy(device.config_db)
    if apply_patch(device, patch).status:
        assert device.config_db == before
    else:
        assert list(sonic_yang.problems(device.config_db)) == []


@pytest.mark.parametrize(
    "database",
    [
        {"QUEUE": {"Ethernet0|7": {"scheduler": "dangling"}}},  # no model is asked
        {"BUFFER_PROFILE": {"mlt": PROFILE | {"unknown": "1"}}},  # orchagent ignores it
    ],
)
def test_load_merges_and_never_deletes(device: SonicDevice, database: Database) -> None:
    expected = copy.deepcopy(device.config_db)
    for table, entries in database.items():
        expected[table] |= entries
    assert run(device, "sudo config load -y /dev/stdin", database).status == 0
    assert device.config_db == expected


@pytest.mark.parametrize(
    ("database", "reason"),
    [
        ({"BUFFER_POOL": {"egress_lossy_pool": {"mode": "static"}}}, "mode of a pool"),
        ({"BUFFER_PROFILE": {"q_lossy_profile": {"pool": "egress_lossless_pool"}}}, "pool of a live profile"),
        ({"BUFFER_PROFILE": {"new": PROFILE}, "SCHEDULER": {"s": {"shape": "1"}}}, "unknown field shape"),
        ({"WRED_PROFILE": {"MLT": WRED | {"green_max_threshold": "1"}}}, "above green_max_threshold"),
        ({"WRED_PROFILE": {"MLT": WRED | {"wred_green_enable": "yes"}}}, "not true or false"),
        ({"WRED_PROFILE": {"MLT": WRED | {"wred_green_enable": ["yes"]}}}, "not true or false"),
        ({"WRED_PROFILE": {"MLT": WRED | {"unknown": "1"}}}, "unknown field unknown"),
        ({"SCHEDULER": {"mlt": {"type": "STRICT", "priority": "1"}}}, "unknown field priority"),
        ({"SCHEDULER": {"mlt": {"type": "STRICT", "pir": "fast"}}}, "pir fast is no number"),
        ({"WRED_PROFILE": "x"}, "no table"),
        ({"WRED_PROFILE": {"MLT": "x"}}, "no fields"),
        ([], "object of tables"),
    ],
)
def test_load_fails_where_orchagent_would(device: SonicDevice, database: object, reason: str) -> None:
    before = copy.deepcopy(device.config_db)
    result = run(device, "sudo config load -y /dev/stdin", database)
    assert (result.status, reason in result.stderr.decode()) == (2, True), result
    assert device.config_db == before


HAS_OURS = "sonic-db-cli CONFIG_DB exists 'WRED_PROFILE|MLT_Q6'"
BROKEN = {"QUEUE": {"Ethernet0|1": {"scheduler": "nowhere"}}}
HIGHER = [replace(f"/WRED_PROFILE/MLT_Q6/green_{end}_threshold", "122880") for end in ("min", "max")]
PATCH = "sudo config apply-patch /dev/stdin"
START = "sudo tee /etc/sonic/config_db.json > /dev/null"
REDIS = "sonic-db-cli CONFIG_DB"


@pytest.mark.parametrize(
    "transcript",
    [
        [
            (PATCH, [wred()], "Patch applied successfully.\n"),
            (PATCH, HIGHER[:1], "than or equal to green_min_threshold. WRED_PROFILE|MLT_Q6 [emulator]\n"),
            (PATCH, HIGHER, "Patch applied successfully.\n"),  # minimum and maximum move in one patch
            (f"{REDIS} hset 'DEVICE_METADATA|localhost' hwsku Unknown-9000", "", "0\n"),
            (PATCH, [replace("/BUFFER_PROFILE/q_lossy_profile/dynamic_th")], "returned False\n"),
        ],
        [
            ("sudo config checkpoint before", "", "Checkpoint created successfully.\n"),
            (PATCH, [wred()], "Patch applied successfully.\n"),
            ("sudo config list-checkpoints", "", '[\n    "before"\n]\n'),
            ("sudo config rollback before", "", "Config rolled back successfully.\n"),
            (HAS_OURS, "", "0\n"),
            ("sudo config delete-checkpoint before", "", "Checkpoint deleted successfully.\n"),
            ("sudo config rollback before", "", "Error: Checkpoint 'before' does not exist\n"),
        ],
        [
            (PATCH, [wred()], "Patch applied successfully.\n"),
            ("sudo config reload -y", "", "Restarting SONiC target ... [emulator]\n"),
            (HAS_OURS, "", "0\n"),  # what was not saved is gone
            (PATCH, [wred()], "Patch applied successfully.\n"),
            ("sudo config save -y && sudo config reload -y", "", "Restarting SONiC target ... [emulator]\n"),
            (HAS_OURS, "", "1\n"),
            (START, BROKEN, ""),
            ("sudo config reload -y", "", "QUEUE|Ethernet0|1 [emulator]\nAborted!\n"),
            ("sudo rm /etc/sonic/config_db.json", "", ""),
            ("sudo config reload -y", "", "doesn't exist\nAborted!\n"),
            ("sudo config load -y", "", "doesn't exist\n"),
            (HAS_OURS, "", "1\n"),
        ],
        [
            (f"{REDIS} keys 'SCHEDULER|*'", "", "SCHEDULER|scheduler.0\nSCHEDULER|scheduler.1\n"),
            (f"{REDIS} HGET 'SCHEDULER|scheduler.0' weight", "", "14\n"),
            (f"{REDIS} hset 'SCHEDULER|mlt' type STRICT weight 7", "", "2\n"),
            (f"{REDIS} hset 'SCHEDULER|mlt' type DWRR", "", "0\n"),
            (f"{REDIS} hdel 'SCHEDULER|mlt' type", "", "1\n"),
            (f"{REDIS} hgetall 'SCHEDULER|mlt'", "", "{'weight': '7'}\n"),
            (f"{REDIS} del 'SCHEDULER|mlt' 'SCHEDULER|none'", "", "1\n"),
            (f"{REDIS} exists 'SCHEDULER|mlt'", "", "0\n"),
            (f"{REDIS} hgetall 'SCHEDULER|mlt'", "", "{}\n"),
            ("sudo counterpoll wredqueue enable", "", ""),
            (
                f"{REDIS} hgetall 'FLEX_COUNTER_TABLE|WRED_ECN_QUEUE'",
                "",
                "{'FLEX_COUNTER_STATUS': 'enable'}\n",
            ),
        ],
    ],
)
def test_transcript(device: SonicDevice, transcript: list[tuple[str, object, str]]) -> None:
    for line, document, text in transcript:
        result = run(device, line, document)
        shown = (result.stdout + result.stderr).decode()
        assert shown.endswith(text) if text else shown == "", (line, shown)


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ("config save -y", 1, "Root privileges are required for this operation"),
        ("show queue", 2, "No such command"),
        ("sudo config frobnicate", 2, "No such command"),
        ("sudo config apply-patch", 2, "Missing argument"),
        ("sudo config apply-patch -q x", 2, "No such option: -q"),
        ("sudo config apply-patch /tmp/none", 2, "No such file or directory"),
        ("sudo config apply-patch -f SONICYANG /dev/stdin", 2, "SONICYANG"),
        ("sudo config checkpoint a/b", 2, "no file name"),
        ("sudo config save", 1, "Aborted!\n"),
        ("sudo config reload", 1, "Aborted!\n"),
        ("sudo config load", 1, "Aborted!\n"),
        ("sudo cat /etc/sonic/config_db.json > /etc/sonic/copy", 1, "Permission denied"),
        ("sudo config save -y > /etc/x", 1, "No such file or directory"),
        ("sonic-cfggen -v x", 2, "[emulator]"),
        ("sonic-db-cli CONFIG_DB flushall", 1, "Invalid"),
        ("sonic-db-cli CONFIG_DB hset 'SCHEDULER|mlt' type", 1, "wrong number of arguments"),
        ("counterpoll wredqueue enable", 1, "Root privileges"),
        ("sudo counterpoll wredqueue maybe", 2, "No such command"),
    ],
)
def test_refused_commands(device: SonicDevice, command: str, status: int, text: str) -> None:
    before = copy.deepcopy(device.config_db)
    result = run(device, command)
    assert (result.status, text in result.stderr.decode()) == (status, True), result
    assert device.config_db == before


def test_replace_wants_the_whole_configuration(device: SonicDevice) -> None:
    target: Database = copy.deepcopy(device.config_db)
    target["WRED_PROFILE"]["MLT_Q6"] = dict(WRED)
    assert run(device, "sudo config replace /dev/stdin", target).status == 0
    part = {"WRED_PROFILE": target["WRED_PROFILE"]}
    assert run(device, "sudo config replace /dev/stdin", part).status == 2
    assert device.config_db == target


def test_reading(device: SonicDevice) -> None:
    for command in ("sonic-cfggen -d --print-data", "sudo sonic-cfggen --print-data -d"):
        assert json.loads(run(device, command).stdout) == device.config_db
    running = json.loads(run(device, "show runningconfiguration all").stdout)
    assert "frr defaults" in running.pop("bgpraw")
    assert running == device.config_db
    assert b"HwSKU: ACS-MSN2700\n" in run(device, "show version").stdout
