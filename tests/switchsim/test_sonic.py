"""SONiC: what the updater takes and refuses, and the small bash around it."""

import ast
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsim import SonicDevice, sonic_yang
from switchsim.bash import ShellSyntaxError, parse
from switchsim.device import CommandResult
from switchsim.sonic_yang import Database

WRED = {
    "wred_green_enable": "true",
    "ecn": "ecn_green",
    "green_min_threshold": "61440",
    "green_max_threshold": "61440",
    "green_drop_probability": "100",
}
PROFILE = {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "-2"}


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def wred(**changed: str) -> dict[str, Any]:
    return add("/WRED_PROFILE/MLT_Q6", WRED | changed)


ACCEPTED: list[list[dict[str, Any]]] = [
    [],
    [wred()],
    [
        wred(),
        add("/SCHEDULER/mlt.strict", {"type": "STRICT"}),
        add("/QUEUE/Ethernet0|6", {"scheduler": "mlt.strict", "wred_profile": "MLT_Q6"}),
    ],
    [wred(green_max_threshold="2147483647")],
    [add("/SCHEDULER/mlt", {"type": "STRICT", "meter_type": "bytes", "cir": "1", "pir": "25000000"})],
    [
        add("/SRV6_MY_LOCATORS", {"x": {"prefix": "fd00:1:2::"}}),
        add("/SRV6_MY_SIDS", {"x|fd00:1:2::/48": {"action": "uN"}}),
    ],
    [add("/FLEX_COUNTER_TABLE/WRED_ECN_QUEUE", {"FLEX_COUNTER_STATUS": "enable"})],
    [add("/QUEUE/Ethernet0|99", {"scheduler": "scheduler.0"})],  # wrong, but the models take it
    [add("/BUFFER_QUEUE/Ethernet0|6-5", {"profile": "q_lossy_profile"})],
    [add("/BUFFER_QUEUE/Ethernet0|6", {"profile": "q_lossy_profile"})],
    [add("/BUFFER_PROFILE/mlt_q6", PROFILE)],
    [{"op": "replace", "path": "/BUFFER_PROFILE/q_lossy_profile/dynamic_th", "value": "1"}],
    [add("/DSCP_TO_TC_MAP/MLT", {"48": "6", "63": "15"})],
    [add("/PORT_QOS_MAP/Ethernet4/pfc_enable", "")],
    [add("/STATIC_ROUTE", {"default|10.8.1.0/24": {"nexthop": "10.0.1.2", "ifname": "Ethernet4"}})],
    [add("/INTERFACE", {"Ethernet4": {}, "Ethernet4|10.0.1.1/30": {}})],
    [add("/SRV6_SID_LIST", {"x": {"path": "a,b"}})],  # a table without a model
]

REFUSED: list[tuple[list[dict[str, Any]], str]] = [
    ([wred(green_max_threshold="61439")], "greater than or equal"),
    (
        [{"op": "replace", "path": "/WRED_PROFILE/AZURE_LOSSLESS/green_min_threshold", "value": "3000000"}],
        "greater",
    ),
    ([wred(green_drop_probability="101")], "constraint"),
    ([wred(ecn="ecn_ect")], "constraint"),
    ([wred(weight="0")], "Unknown field"),
    ([wred(wred_green_enable="True")], "constraint"),
    ([wred(green_max_threshold="2147483648")], "orchagent"),
    (
        [wred(wred_yellow_enable="true", yellow_min_threshold="1", yellow_max_threshold="1")],
        "ecn_green needs",
    ),
    ([wred(ecn="ecn_all")], "yellow needs both thresholds"),
    ([wred(wred_green_enable="false")], "without wred_green_enable"),
    ([add("/WRED_PROFILE/MLT.Q6", WRED)], "constraint"),
    ([add("/WRED_PROFILE/" + "a" * 33, WRED)], "constraint"),
    ([add("/QUEUE/Ethernet0|6", {"wred_profile": "MLT_Q6"})], "WRED_PROFILE"),
    ([wred(), add("/QUEUE/Ethernet0|6", {"wred_profile": "[WRED_PROFILE|MLT_Q6]"})], "WRED_PROFILE"),
    ([add("/QUEUE/Ethernet0,Ethernet4|6", {"scheduler": "scheduler.0"})], "PORT"),
    ([add("/QUEUE/Ethernet2|6", {"scheduler": "scheduler.0"})], "PORT"),
    ([add("/QUEUE/Ethernet0", {"scheduler": "scheduler.0"})], "number of parts"),
    ([add("/SCHEDULER/mlt", {"type": "STRICT", "priority": "7"})], "orchagent"),
    ([add("/SCHEDULER/mlt", {"type": "DWRR", "weight": "0"})], "constraint"),
    ([add("/SCHEDULER/mlt", {"type": "STRICT", "weight": "10"})], "weight requires DWRR"),
    ([add("/SCHEDULER/mlt", {"type": "WRR", "weight": "10"})], "WRR is not supported"),
    ([add("/SCHEDULER/mlt", {"type": "STRICT", "meter_type": "packets"})], "only bytes/s"),
    ([add("/SCHEDULER/mlt", {"type": "STRICT", "cir": "9", "cbs": "9"})], "burst sizes are not supported"),
    ([add("/SCHEDULER/mlt", {"type": "STRICT", "cir": "1", "pir": "24999999"})], "below 200 Mbit/s"),
    ([add("/SCHEDULER/mlt", {"type": "STRICT", "pir": "25000000"})], "without cir"),
    ([add("/SRV6_MY_SIDS", {"x|fd00:1:2::/48": {"action": "uN"}})], "SRV6_MY_LOCATORS"),
    ([add("/SRV6_MY_LOCATORS", {"x": {"prefix": "fd00::", "node_len": "90"}})], "128 or less"),
    ([add("/FLEX_COUNTER_TABLE/WRED_ECN_QUEUE", {"BULK_CHUNK_SIZE": "1"})], "Unknown field"),
    ([add("/DSCP_TO_TC_MAP/MLT", {"64": "0"})], "constraint"),
    ([add("/DSCP_TO_TC_MAP/MLT", {"1": "16"})], "constraint"),
    ([add("/TC_TO_QUEUE_MAP/MLT", {"1": "10"})], "constraint"),
    ([add("/TC_TO_QUEUE_MAP/MLT", {"1": "9"})], "orchagent"),
    ([add("/TC_TO_PRIORITY_GROUP_MAP/MLT", {"1": "8"})], "constraint"),
    ([add("/BUFFER_PROFILE/mlt_q6", PROFILE | {"dynamic_th": "8"})], "constraint"),
    ([add("/BUFFER_PROFILE/mlt_q6", {"pool": "egress_lossy_pool", "dynamic_th": "1"})], "Missing required"),
    ([add("/BUFFER_PROFILE/mlt_q6", PROFILE | {"pool": "nowhere"})], "BUFFER_POOL"),
    ([{"op": "replace", "path": "/BUFFER_PROFILE/q_lossy_profile/size", "value": "1"}], "is illegal"),
    (
        [add("/BUFFER_PROFILE/q_lossy_profile", PROFILE | {"size": "9"})],
        "is illegal",
    ),  # the difference counts
    ([{"op": "replace", "path": "/BUFFER_POOL/egress_lossy_pool/size", "value": "1"}], "is illegal"),
    ([add("/BUFFER_POOL/mlt", {"type": "egress", "mode": "dynamic"})], "is illegal"),
    ([add("/PORT_QOS_MAP/Ethernet2", {"dscp_to_tc_map": "AZURE"})], "PORT"),
    ([add("/PORT_QOS_MAP/Ethernet0/tc_to_queue_map", "MLT")], "TC_TO_QUEUE_MAP"),
    ([{"op": "remove", "path": "/WRED_PROFILE"}], "an entry of WRED_PROFILE"),
    ([{"op": "remove", "path": "/PORT_QOS_MAP/nowhere"}], "nowhere"),
    ([add("/STATIC_ROUTE", {})], "empty tables"),
    (
        [add("/STATIC_ROUTE/default|10.8.1.0~124", {"nexthop": "10.0.1.2"})],
        "STATIC_ROUTE",
    ),  # no such table yet
    ([add("/INTERFACE", {"Ethernet4|10.0.1.1/30": {}})], "must exist"),
    ([add("/WRED_PROFILE/MLT_Q6", WRED | {"green_min_threshold": 61440})], "no text"),
    ([{"op": "replace", "path": "", "value": {}}], "empty path"),
    ([wred(), {"op": "test", "path": "/SCHEDULER/scheduler.0/weight", "value": "99"}], "99"),
]


@pytest.fixture
def device() -> SonicDevice:
    return SonicDevice(ports=4)


def apply_patch(device: SonicDevice, patch: object, *flags: str) -> CommandResult:
    command = " ".join(["sudo config apply-patch", *flags, "/dev/stdin"])
    return device.execute("admin", command, lambda: json.dumps(patch).encode())


def test_default_database_is_valid() -> None:
    database = SonicDevice(ports=32).config_db
    assert list(sonic_yang.problems(database)) == []
    assert len(database["PORT"]) == 32
    assert database["BUFFER_POOL"]["egress_lossy_pool"]["size"] == "4580864"


@pytest.mark.parametrize("patch", ACCEPTED)
def test_accepted_patch(device: SonicDevice, patch: list[dict[str, Any]]) -> None:
    result = apply_patch(device, patch)
    assert (result.status, result.stderr) == (0, b"")
    assert result.stdout.endswith(b"Patch applied successfully.\n")
    for operation in patch:
        table, *rest = operation["path"][1:].split("/")
        assert table in device.config_db
        if len(rest) == 1:
            assert device.config_db[table][rest[0]] == operation["value"]


@pytest.mark.parametrize(("patch", "reason"), REFUSED)
def test_refused_patch_changes_nothing(device: SonicDevice, patch: list[dict[str, Any]], reason: str) -> None:
    before = copy.deepcopy(device.config_db)
    result = apply_patch(device, patch)
    assert result.status == 2
    assert result.stderr.startswith(b"Failed to apply patch due to: ")
    assert reason in result.stderr.decode()
    assert b"successfully" not in result.stdout
    assert device.config_db == before


def test_minimum_and_maximum_move_in_one_patch(device: SonicDevice) -> None:
    apply_patch(device, [wred()])
    higher = [
        {"op": "replace", "path": f"/WRED_PROFILE/MLT_Q6/green_{end}_threshold", "value": "122880"}
        for end in ("min", "max")
    ]
    assert apply_patch(device, higher[:1]).status == 2
    assert apply_patch(device, higher).status == 0


def test_field_edits_need_known_hardware(device: SonicDevice) -> None:
    device.config_db["DEVICE_METADATA"]["localhost"]["hwsku"] = "Unknown-9000"
    patch = [{"op": "replace", "path": "/BUFFER_PROFILE/q_lossy_profile/dynamic_th", "value": "1"}]
    assert b"is illegal" in apply_patch(device, patch).stderr


def test_other_boxes_have_their_pools_and_refuse_less() -> None:
    device = SonicDevice(ports=2, box="trident3")
    assert list(sonic_yang.problems(device.config_db)) == []
    assert device.config_db["BUFFER_POOL"]["egress_lossless_pool"]["mode"] == "static"
    assert b"ASIC: broadcom" in device.execute("admin", "show version").stdout
    weight = [add("/SCHEDULER/mlt", {"type": "STRICT", "weight": "10"})]
    assert apply_patch(device, weight).status == 0
    crossed = [add("/WRED_PROFILE/X", {"green_min_threshold": "2", "green_max_threshold": "1"})]
    assert apply_patch(device, crossed).status == 2
    with pytest.raises(ValueError, match="box x, expected one of sn2700"):
        SonicDevice(box="x")


def test_counterpoll_sets_one_field(device: SonicDevice) -> None:
    assert device.execute("admin", "counterpoll wredqueue enable").status == 1
    assert device.execute("admin", "sudo counterpoll wredqueue enable").status == 0
    assert device.config_db["FLEX_COUNTER_TABLE"]["WRED_ECN_QUEUE"] == {"FLEX_COUNTER_STATUS": "enable"}
    assert device.execute("admin", "sudo counterpoll wredqueue maybe").status == 2


def test_dry_run_checks_and_changes_nothing(device: SonicDevice) -> None:
    before = copy.deepcopy(device.config_db)
    result = apply_patch(device, [wred()], "-d", "-v", "-f", "CONFIGDB")
    assert result.stdout.startswith(b"** DRY RUN EXECUTION **\n")
    assert apply_patch(device, [wred(ecn="no")], "-d").status == 2
    assert device.config_db == before


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{}", b"[1]", b'[{"op": "add"}]', b"[" * 10_000, b'[{"op": "x", "path": "/a"}]']
)
def test_no_patch_at_all(device: SonicDevice, text: bytes) -> None:
    assert device.execute("admin", "sudo config apply-patch /dev/stdin", lambda: text).status == 2


paths = st.lists(
    st.sampled_from(
        ["WRED_PROFILE", "QUEUE", "PORT", "AZURE_LOSSLESS", "Ethernet0", "alias", "0", "-", "~1", "ecn"]
    ),
    max_size=4,
).map(lambda parts: "".join(f"/{part}" for part in parts))
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
def test_any_patch_is_applied_whole_or_not_at_all(patch: list[dict[str, Any]]) -> None:
    device = SonicDevice(ports=1)
    before = copy.deepcopy(device.config_db)
    if apply_patch(device, patch).status:
        assert device.config_db == before
    else:
        assert list(sonic_yang.problems(device.config_db)) == []


def test_load_merges_and_never_deletes(device: SonicDevice) -> None:
    queues = len(device.config_db["QUEUE"])
    device.execute(
        "admin",
        "tee /tmp/a.json",
        lambda: json.dumps({"QUEUE": {"Ethernet0|7": {"scheduler": "scheduler.0"}}}).encode(),
    )
    assert device.execute("admin", "sudo config load -y /tmp/a.json").status == 0
    assert len(device.config_db["QUEUE"]) == queues + 1


def test_load_asks_no_model_but_orchagent(device: SonicDevice) -> None:
    def load(database: object) -> int:
        return device.execute(
            "admin", "sudo config load -y /dev/stdin", lambda: json.dumps(database).encode()
        ).status

    assert load({"QUEUE": {"Ethernet0|7": {"scheduler": "dangling"}}}) == 0
    before = copy.deepcopy(device.config_db)
    assert load({"WRED_PROFILE": {"MLT": WRED | {"unknown": "1"}}}) == 2
    assert load({"SCHEDULER": {"mlt": {"type": "STRICT", "priority": "1"}}}) == 2
    assert load({"SCHEDULER": {"mlt": {"type": "STRICT", "pir": "fast"}}}) == 2
    assert load({"BUFFER_PROFILE": {"mlt": PROFILE | {"unknown": "1"}}}) == 0  # ignored, says the sheet
    del device.config_db["BUFFER_PROFILE"]["mlt"]
    assert device.config_db == before


def test_checkpoints_come_back(device: SonicDevice) -> None:
    before = copy.deepcopy(device.config_db)
    run = device.execute
    assert run("admin", "sudo config checkpoint before").stdout == b"Checkpoint created successfully.\n"
    apply_patch(device, [wred()])
    assert json.loads(run("admin", "sudo config list-checkpoints").stdout) == ["before"] == device.checkpoints
    assert run("admin", "sudo config rollback before").stdout == b"Config rolled back successfully.\n"
    assert device.config_db == before
    assert run("admin", "sudo config delete-checkpoint before").status == 0
    missing = run("admin", "sudo config rollback before")
    assert (missing.status, b"Checkpoint 'before' does not exist" in missing.stderr) == (2, True)


def test_save_and_reload(device: SonicDevice) -> None:
    apply_patch(device, [wred()])
    assert device.execute("admin", "sudo config reload -y").status == 0  # what was not saved is gone
    assert "MLT_Q6" not in device.config_db["WRED_PROFILE"]
    assert device.restarts == 1
    apply_patch(device, [wred()])
    assert device.execute("admin", "sudo config save -y && sudo config reload -y").status == 0
    assert device.config_db["WRED_PROFILE"]["MLT_Q6"] == WRED


@pytest.mark.parametrize("command", ["save", "reload", "load"])
def test_questions_without_an_answer_abort(device: SonicDevice, command: str) -> None:
    result = device.execute("admin", f"sudo config {command}")
    assert (result.status, result.stderr) == (1, b"Aborted!\n")


def test_reading_and_a_change_by_hand(device: SonicDevice) -> None:
    apply_patch(device, [wred()])
    for command in ("sonic-cfggen -d --print-data", "sudo sonic-cfggen --print-data -d"):
        assert json.loads(device.execute("admin", command).stdout) == device.config_db
    running = json.loads(device.execute("admin", "show runningconfiguration all").stdout)
    assert "frr defaults" in running.pop("bgpraw")
    assert running == device.config_db
    change = "sonic-db-cli CONFIG_DB hset 'WRED_PROFILE|MLT_Q6' green_max_threshold 122880"
    assert device.execute("admin", change).stdout == b"0\n"
    shown = device.execute("admin", "sonic-db-cli CONFIG_DB hgetall 'WRED_PROFILE|MLT_Q6'").stdout
    assert ast.literal_eval(shown.decode()) == WRED | {"green_max_threshold": "122880"}


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ("config save -y", 1, "Root privileges are required for this operation"),
        ("foo", 127, "bash: line 1: foo: command not found"),
        ("sudo foo", 1, "sudo: foo: command not found"),
        ("show queue", 2, "No such command"),
        ("sudo config frobnicate", 2, "No such command"),
        ("sudo config apply-patch", 2, "Missing argument"),
        ("sudo config apply-patch -q x", 2, "No such option: -q"),
        ("sudo config apply-patch /tmp/none", 2, "No such file or directory"),
        ("sudo config apply-patch -f SONICYANG /dev/stdin", 2, "SONICYANG"),
        ("sudo config checkpoint a/b", 2, "no file name"),
        ("sudo cat /etc/sonic/config_db.json > /etc/sonic/copy", 1, "Permission denied"),
        ("cat /nowhere", 1, "No such file or directory"),
        ("rm /tmp/none", 1, "No such file or directory"),
        ("echo $HOME", 2, "[emulator]"),
        ("echo `id`", 2, "[emulator]"),
        ("cat << EOF", 2, "[emulator]"),
        ("echo 'a", 2, "unexpected EOF"),
        ("| cat", 2, "syntax error"),
        ("sonic-cfggen -v x", 2, "[emulator]"),
        ("sonic-db-cli CONFIG_DB flushall", 1, "Invalid"),
        ("sudo config save -y > /etc/x", 1, "No such file or directory"),
    ],
)
def test_refused_commands(device: SonicDevice, command: str, status: int, text: str) -> None:
    before = copy.deepcopy(device.config_db)
    result = device.execute("admin", command)
    assert (result.status, text in result.stderr.decode()) == (status, True), result
    assert device.config_db == before


def test_shell_plumbing(device: SonicDevice) -> None:
    run = device.execute
    assert run("admin", "false || echo \"a b\" 'c;d' e\\ f").stdout == b"a b c;d e f\n"
    assert run("admin", "false && echo a; echo $?").stdout == b"1\n"
    assert (
        run("admin", "echo one > /tmp/a && echo two >> /tmp/a && cat < /tmp/a | tee /tmp/b").stdout
        == b"one\ntwo\n"
    )
    assert run("admin", "cat /nowhere 2>&1 | cat").stdout == b"cat: /nowhere: No such file or directory\n"
    assert run("admin", "cat /nowhere 2> /dev/null").stderr == b""
    assert run("admin", "rm -f /tmp/a /tmp/b /tmp/none; cat /tmp/a").status == 1
    assert (
        run("admin", "sudo tee /etc/sonic/x > /dev/null && cat /etc/sonic/x", lambda: b"\xff\x00").stdout
        == b"\xff\x00"
    )


@given(st.text(alphabet=st.sampled_from(list(" '\"\\|;&<>$?`ab/-")), max_size=30))
def test_any_line_parses_or_is_refused(line: str) -> None:
    try:
        parse(line)
    except ShellSyntaxError:
        return


@given(st.text(max_size=40))
def test_no_line_raises(line: str) -> None:
    session = SonicDevice(ports=1).open_session("admin")
    session.enter(line)


def test_files_are_bounded(device: SonicDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchsim.linux.MAX_TOTAL_BYTES", 100_000)
    result = device.execute("admin", "tee /tmp/x > /dev/null", lambda: b"x" * 100_000)
    assert (result.status, b"No space left on device" in result.stderr) == (1, True)


def test_replace_wants_the_whole_configuration(device: SonicDevice) -> None:
    target: Database = copy.deepcopy(device.config_db)
    target["WRED_PROFILE"]["MLT_Q6"] = dict(WRED)
    whole = json.dumps(target).encode()
    assert device.execute("admin", "sudo config replace /dev/stdin", lambda: whole).status == 0
    part = json.dumps({"WRED_PROFILE": target["WRED_PROFILE"]}).encode()
    assert device.execute("admin", "sudo config replace /dev/stdin", lambda: part).status == 2
    assert device.config_db == target


@pytest.mark.parametrize(
    ("database", "reason"),
    [
        ({"BUFFER_POOL": {"egress_lossy_pool": {"mode": "static"}}}, "mode of a pool"),
        ({"BUFFER_PROFILE": {"q_lossy_profile": {"pool": "egress_lossless_pool"}}}, "pool of a live profile"),
        ({"BUFFER_PROFILE": {"new": PROFILE}, "SCHEDULER": {"s": {"shape": "1"}}}, "unknown field shape"),
        ({"WRED_PROFILE": {"MLT": WRED | {"green_max_threshold": "1"}}}, "above green_max_threshold"),
        ({"WRED_PROFILE": {"MLT": WRED | {"wred_green_enable": "yes"}}}, "not true or false"),
        ({"WRED_PROFILE": "x"}, "no table"),
        ({"WRED_PROFILE": {"MLT": "x"}}, "no fields"),
        ([], "object of tables"),
    ],
)
def test_load_fails_where_orchagent_would(device: SonicDevice, database: object, reason: str) -> None:
    before = copy.deepcopy(device.config_db)
    text = json.dumps(database).encode()
    result = device.execute("admin", "sudo config load -y /dev/stdin", lambda: text)
    assert (result.status, reason in result.stderr.decode()) == (2, True), result
    assert device.config_db == before


def test_reload_refuses_an_invalid_file(device: SonicDevice) -> None:
    before = copy.deepcopy(device.config_db)
    broken = json.dumps({"QUEUE": {"Ethernet0|1": {"scheduler": "nowhere"}}}).encode()
    device.execute("admin", "sudo tee /etc/sonic/config_db.json", lambda: broken)
    assert device.execute("admin", "sudo config reload -y").stderr == b"Aborted!\n"
    device.execute("admin", "sudo rm /etc/sonic/config_db.json")
    assert b"doesn't exist" in device.execute("admin", "sudo config reload -y").stdout
    assert (device.config_db, device.restarts) == (before, 0)
    assert device.execute("admin", "sudo config load -y").stdout.endswith(b"doesn't exist\n")


def test_redis_by_hand(device: SonicDevice) -> None:
    def redis(*words: str) -> str:
        return device.execute("admin", " ".join(["sonic-db-cli CONFIG_DB", *words])).stdout.decode()

    assert redis("keys 'SCHEDULER|*'") == "SCHEDULER|scheduler.0\nSCHEDULER|scheduler.1\n"
    assert redis("HGET 'SCHEDULER|scheduler.0' weight") == "14\n"
    assert redis("hset 'SCHEDULER|mlt' type STRICT weight 7") == "2\n"
    assert redis("hdel 'SCHEDULER|mlt' type") == "1\n"
    assert device.config_db["SCHEDULER"]["mlt"] == {"weight": "7"}
    assert redis("del 'SCHEDULER|mlt'") == "1\n"
    assert redis("exists 'SCHEDULER|mlt'") == "0\n"
    assert redis("hgetall 'SCHEDULER|mlt'") == "{}\n"
    assert device.execute("admin", "sonic-db-cli CONFIG_DB hset 'SCHEDULER|mlt' type").status == 1


def test_versions_name_the_hardware(device: SonicDevice) -> None:
    assert b"HwSKU: ACS-MSN2700\n" in device.execute("admin", "show version").stdout
