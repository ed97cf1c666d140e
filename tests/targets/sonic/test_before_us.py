"""What a SONiC switch runs before the first push: keys that list several ports, and older faults."""

import copy
import time
from collections.abc import Callable

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import Change
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import Database, split
from switchsim.sonic import SonicDevice
from tests.targets.sonic.device import apply, list_ports, read
from tests.targets.sonic.test_sonic import CAPABILITIES, STATE
from tests.targets.sonic.under_test import foreign

LISTED = ("Ethernet0", "Ethernet4", "Ethernet12", "Ethernet16")
"""Two ports of the plan, and two others."""


def listing() -> SonicDevice:
    device = SonicDevice()
    list_ports(device.config_db, LISTED)
    assert "Ethernet0,Ethernet4,Ethernet12,Ethernet16|3-4" in device.config_db["BUFFER_QUEUE"]
    return device


def change_of(device: SonicDevice) -> Change:
    return TARGET.diff(read(device, STATE), STATE, CAPABILITIES)


def judge(device: SonicDevice, change: Change) -> None:
    assert change.trial is not None
    before = copy.deepcopy(device.config_db)
    answer = device.execute("admin", change.trial.command)
    assert (answer.status, device.config_db) == (0, before)
    change.trial.judge(answer.stdout.decode())


def by_hand(device: SonicDevice, change: Change) -> None:
    [line] = [each for each in change.text.splitlines() if each.startswith("# back to the state before: ")]
    assert device.execute("admin", line.partition(": ")[2]).status == 0


def by_timer(device: SonicDevice, change: Change) -> None:
    for step in change.steps:
        if "systemd-run" in step.command:
            assert device.execute("admin", step.command).status == 0
    time.sleep(1.5)


def test_a_key_that_lists_ports_becomes_a_key_a_port_with_the_same_values() -> None:
    device = listing()
    before = split(device.config_db, {})
    change = change_of(device)
    judge(device, change)
    assert set(change.takes_down) == {"Ethernet8", *LISTED}
    apply(device, change)
    assert read(device, STATE).state == STATE
    assert dict(foreign(device.config_db, STATE)) == dict(foreign(before, STATE))
    assert not [key for entries in device.config_db.values() for key in entries if "," in key]
    assert change_of(device).is_empty


@pytest.mark.parametrize("go_back", [by_hand, by_timer, None], ids=["by hand", "by timer", "by us"])
def test_every_way_back_makes_the_former_keys_again(
    go_back: Callable[[SonicDevice, Change], None] | None,
) -> None:
    device = listing()
    start, before = copy.deepcopy(device.config_db), read(device, STATE).answers
    change = change_of(device)
    assert TARGET.timer is not None
    if go_back is by_timer:
        change = TARGET.timer.arm(change, before, STATE, "law", 1)
        apply(device, Change(tuple(step for step in change.steps if "systemd-run" not in step.command)))
    else:
        apply(device, change)
    if go_back is not None:
        go_back(device, change)
        assert device.config_db == start
    for _ in range(2):
        apply(device, TARGET.restore(before, read(device, STATE), STATE, CAPABILITIES))
        assert device.config_db == start


def test_what_somebody_changed_since_of_a_listed_key_stays() -> None:
    device = listing()
    before = read(device, STATE).answers
    apply(device, change_of(device))
    device.config_db["BUFFER_QUEUE"]["Ethernet16|3-4"] = {"profile": "q_lossy_profile"}
    apply(device, TARGET.restore(before, read(device, STATE), STATE, CAPABILITIES))
    assert device.config_db["BUFFER_QUEUE"]["Ethernet16|3-4"] == {"profile": "q_lossy_profile"}
    assert device.config_db["BUFFER_QUEUE"]["Ethernet0|3-4"] == {"profile": "egress_lossless_profile"}
    assert ",".join(LISTED) in device.config_db["PORT_QOS_MAP"]


def test_keys_that_contradict_each_other_about_queues_of_the_plan_are_mended() -> None:
    device = listing()
    device.config_db["QUEUE"][f"{','.join(LISTED)}|5-6"] = {"scheduler": "scheduler.0"}
    device.config_db["QUEUE"][f"{LISTED[0]}|6"] = {"scheduler": "scheduler.1"}
    assert read(device, STATE).state != STATE
    apply(device, change_of(device))
    assert read(device, STATE).state == STATE


@pytest.mark.parametrize(
    ("table", "key", "fields", "other"),
    [
        ("BUFFER_QUEUE", "Ethernet12|3-4", {"profile": "q_lossy_profile"}, f"{','.join(LISTED)}|3-4"),
        ("BUFFER_QUEUE", "Ethernet12|4", {"profile": "q_lossy_profile"}, f"{','.join(LISTED)}|3-4"),
        ("PORT_QOS_MAP", "Ethernet12", {"pfc_enable": "3"}, ",".join(LISTED)),
    ],
)
def test_two_keys_that_contradict_each_other_are_both_named(
    table: str, key: str, fields: dict[str, str], other: str
) -> None:
    device = listing()
    device.config_db[table][key] = {**fields}
    with pytest.raises(DeviceError) as caught:
        change_of(device)
    assert f"{table}|{key}" in str(caught.value)
    assert f"{table}|{other}" in str(caught.value)


OLDER: dict[str, Database] = {
    "BUFFER_PG|Ethernet12|9": {"BUFFER_PG": {"Ethernet12|9": {"profile": "ingress_lossy_profile"}}},
    "QUEUE|Ethernet99|3": {"QUEUE": {"Ethernet99|3": {"scheduler": "scheduler.0"}}},
    "SCHEDULER|theirs": {"SCHEDULER": {"theirs": {"type": "SLOW"}}},
    "INTERFACE|Ethernet0|192.0.2.1": {"INTERFACE": {"Ethernet0|192.0.2.1": {}}},
    "QUEUE|Ethernet0,Ethernet99|3": {"QUEUE": {"Ethernet0,Ethernet99|3": {"scheduler": "scheduler.0"}}},
}
"""What the models refuse → who made it so."""


@pytest.mark.parametrize("place", OLDER)
@pytest.mark.parametrize("release", ["202211", "202511"])
def test_an_older_fault_is_named_as_such(place: str, release: str) -> None:
    device = SonicDevice(release=release)
    for table, entries in OLDER[place].items():
        device.config_db.setdefault(table, {}).update(copy.deepcopy(entries))
    with pytest.raises(DeviceError) as caught:
        judge(device, change_of(device))
    assert "already, before this change" in str(caught.value)
    assert f": {place} (" in str(caught.value)
    assert caught.value.hint == "the fault is older than the plan: mend it on the switch, and push again"


ANSWERS = {
    # sonic-net/sonic-buildimage issues 9626, 18854, 24310
    'libyang[0]: Value "scheduler.0" does not satisfy the constraint "[a-z]{1,32}" (range or pattern). '
    "(path: /sonic-queue:sonic-queue/QUEUE/QUEUE_LIST[ifname='Ethernet12'][qindex='0']/scheduler)\n"
    "Failed to replace config\n": "QUEUE|Ethernet12|0 (",
    "Failed to replace config\nError: Given patch will produce invalid config. Error: Data Loading Failed\n"
    'Invalid value "Ethernet-IB0" in "ifname" element.\n': "BUFFER_PG|Ethernet-IB0|0 (",
    "Failed to replace config\nError: All Keys are not parsed in QUEUE\ndict_keys(['Ethernet12|a-b'])\n": (
        "QUEUE|Ethernet12|a-b ("
    ),
    "Failed to replace config\nError: Data Loading Failed\nInvalid JSON data (unexpected value).\n": (
        "nobody knows where (Invalid JSON data (unexpected value).)"
    ),
    "sudo: a password is required\n": "does not say whether it takes what runs now: 'sudo: a password",
    "": "does not say whether it takes what runs now: ''",
}
"""What the updater prints → what the operator reads of it."""


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_the_updater_prints_is_led_back_to_table_and_key(answer: str) -> None:
    device = SonicDevice()
    device.config_db["BUFFER_PG"]["Ethernet-IB0|0"] = {"profile": "ingress_lossy_profile"}
    device.config_db["QUEUE"]["Ethernet12|a-b"] = {"scheduler": "scheduler.0"}
    trial = change_of(device).trial
    assert trial is not None
    with pytest.raises(DeviceError) as caught:
        trial.judge(answer)
    assert ANSWERS[answer] in str(caught.value)
