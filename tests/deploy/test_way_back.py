"""What a push prints as the way back leads back, on emulated switches that keep the state before."""

import copy
import json
from pathlib import Path

from mltswitch.deploy import Status, push
from mltswitch.inventory import Inventory
from mltswitch.lab.emulators import EmulatorServer, SonicDevice, load_authorized_keys, load_host_key
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key
from tests.deploy.test_cumulus_end_to_end import by_hand, cumulus_plan, served
from tests.deploy.test_sonic_end_to_end import sonic_plan


def test_sonic_returns_to_its_checkpoint_and_saves_it(tmp_path: Path) -> None:
    host_key = make_key(tmp_path / "host")
    make_key(tmp_path / "id")
    switch = SonicDevice()
    before = copy.deepcopy(switch.config_db)
    with EmulatorServer(
        switch,
        host_key=load_host_key(tmp_path / "host"),
        authorized_keys=load_authorized_keys(tmp_path / "id.pub"),
    ) as server:
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        leaf = device(
            "sonic1",
            platform="sonic",
            switch="leaf1",
            port=server.port,
            key_file=tmp_path / "id",
            known_hosts_file=tmp_path / "known_hosts",
        )
        [report] = push(sonic_plan(), Inventory((leaf,), Path("inventory")), accept=True).devices
    assert (report.status, report.error) == (Status.CHANGED, "")
    assert switch.config_db != before
    assert switch.execute("admin", report.way_back).status == 0
    assert switch.config_db == before
    assert json.loads(switch.files.read("/etc/sonic/config_db.json")) == before


def test_cumulus_returns_to_the_revision_before_and_saves_it(tmp_path: Path) -> None:
    with served(tmp_path) as (switch, rack):
        by_hand(switch, "set system hostname leaf1")
        before = copy.deepcopy(switch.applied)
        number = len(switch.revisions.history)
        [report] = push(cumulus_plan(), rack).devices
    assert (report.status, report.error) == (Status.CHANGED, "")
    assert switch.applied != before
    commands = report.way_back.partition(" (")[0].replace("REVISION", f"{number} -y")
    for command in commands.split(" && "):
        assert switch.execute("cumulus", command).status == 0
    assert switch.applied == switch.saved == before
