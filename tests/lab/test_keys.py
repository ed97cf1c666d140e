from pathlib import Path

from mltswitch.lab.keys import create_lab_keys
from mltswitch.lab.model import DeviceAddress
from mltswitch.lab.paths import LabPaths
from switchsim.ssh_server import load_authorized_keys, load_host_key


def test_keys_are_private_and_known_hosts_names_each_device(tmp_path: Path) -> None:
    paths = LabPaths(tmp_path / "lab")
    paths.create()
    devices = [
        DeviceAddress("a", "linux", "127.77.9.1", 2222),
        DeviceAddress("b", "onyx", "127.77.9.2", 22),
    ]
    create_lab_keys(paths.private_key, paths.known_hosts, paths.host_keys, devices)
    lines = [line.split() for line in paths.known_hosts.read_text().splitlines()]
    assert [line[0] for line in lines] == ["[127.77.9.1]:2222", "127.77.9.2"]
    for device, line in zip(devices, lines, strict=True):
        key = load_host_key(paths.host_keys / device.name)
        assert line[1:] == ["ssh-ed25519", key.get_base64()]
    assert load_authorized_keys(paths.authorized_keys) == (load_host_key(paths.private_key),)
    for file in (paths.private_key, paths.host_keys / "a", paths.known_hosts):
        assert file.stat().st_mode & 0o777 == 0o600
