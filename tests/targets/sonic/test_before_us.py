"""What a SONiC switch runs before the first push: keys that list several ports, and older faults."""

import copy
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import Change
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import split
from switchsim.sonic import SonicDevice
from tests.targets.sonic.device import apply, list_ports, read
from tests.targets.sonic.test_sonic import CAPABILITIES, SONIC, STATE, enter
from tests.targets.sonic.under_test import foreign
from tests.targets.stories import Case, play, stories

LISTED = ("Ethernet0", "Ethernet4", "Ethernet12", "Ethernet16")
"""Two ports of the plan, and two others."""


def listing() -> SonicDevice:
    device = SonicDevice()
    list_ports(device.config_db, LISTED)
    assert "Ethernet0,Ethernet4,Ethernet12,Ethernet16|3-4" in device.config_db["BUFFER_QUEUE"]
    return device


def judge(device: SonicDevice, change: Change) -> None:
    assert change.trial is not None
    before = copy.deepcopy(device.config_db)
    answer = device.execute("admin", change.trial.command)
    assert (answer.status, device.config_db) == (0, before)
    change.trial.judge(answer.stdout.decode())


@pytest.mark.parametrize("case", stories(Path(__file__).parent / "listed.txt", {"LISTED": ",".join(LISTED)}))
def test_story(case: Case) -> None:
    play(case, replace(SONIC, new=listing))


def test_a_key_that_lists_ports_becomes_a_key_a_port_with_the_same_values() -> None:
    device = listing()
    before = split(device.config_db, {})
    change = SONIC.change(device, STATE)
    judge(device, change)
    assert set(change.takes_down) == {"Ethernet8", *LISTED}
    apply(device, change)
    assert read(device, STATE).state == STATE
    assert dict(foreign(device.config_db, STATE)) == dict(foreign(before, STATE))
    assert not [key for entries in device.config_db.values() for key in entries if "," in key]
    assert SONIC.change(device, STATE).is_empty


@pytest.mark.parametrize("way", ["by hand", "by timer", "by us"])
def test_every_way_back_makes_the_former_keys_again(way: str) -> None:
    device = listing()
    start, before = copy.deepcopy(device.config_db), read(device, STATE).answers
    change = SONIC.change(device, STATE)
    if way == "by timer":
        assert TARGET.timer is not None
        armed = TARGET.timer.arm(change, before, STATE, "law", 1)
        [timer] = [step for step in armed.steps if "systemd-run" in step.command]
        apply(device, replace(armed, steps=tuple(step for step in armed.steps if step != timer)))
        assert device.execute("admin", timer.command).status == 0
        end = time.monotonic() + 30.0
        while device.config_db != start and time.monotonic() < end:
            time.sleep(0.05)
    else:
        apply(device, change)
    if way == "by hand":
        [line] = re.findall("^# back to the state before: (.*)$", change.text, re.MULTILINE)
        assert device.execute("admin", line).status == 0
    assert (device.config_db == start) is (way != "by us")
    for _ in range(2):
        apply(device, TARGET.restore(before, read(device, STATE), STATE, CAPABILITIES))
        assert device.config_db == start


def test_what_somebody_changed_since_of_a_listed_key_stays() -> None:
    device = listing()
    before = read(device, STATE).answers
    apply(device, SONIC.change(device, STATE))
    device.config_db["BUFFER_QUEUE"]["Ethernet16|3-4"] = {"profile": "q_lossy_profile"}
    apply(device, TARGET.restore(before, read(device, STATE), STATE, CAPABILITIES))
    assert device.config_db["BUFFER_QUEUE"]["Ethernet16|3-4"] == {"profile": "q_lossy_profile"}
    assert device.config_db["BUFFER_QUEUE"]["Ethernet0|3-4"] == {"profile": "egress_lossless_profile"}
    assert ",".join(LISTED) in device.config_db["PORT_QOS_MAP"]


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("BUFFER_PG|Ethernet12|9", "profile ingress_lossy_profile"),
        ("QUEUE|Ethernet99|3", "scheduler scheduler.0"),
        ("SCHEDULER|theirs", "type SLOW"),
        ("INTERFACE|Ethernet0|192.0.2.1", "NULL NULL"),
        ("QUEUE|Ethernet0,Ethernet99|3", "scheduler scheduler.0"),
    ],
)
@pytest.mark.parametrize("release", ["202211", "202511"])
def test_an_older_fault_is_named_as_such(key: str, fields: str, release: str) -> None:
    """What the models refuse, and the plan has not made."""
    device = SonicDevice(release=release)
    enter(device, [f"hset '{key}' {fields}"])
    with pytest.raises(DeviceError) as caught:
        judge(device, SONIC.change(device, STATE))
    assert "already, before this change" in str(caught.value)
    assert f": {key} (" in str(caught.value)
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
    trial = SONIC.change(device, STATE).trial
    assert trial is not None
    with pytest.raises(DeviceError) as caught:
        trial.judge(answer)
    assert ANSWERS[answer] in str(caught.value)
