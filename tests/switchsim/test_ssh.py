"""The emulators behind real clients: netmiko and OpenSSH."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import paramiko
import pytest
from netmiko.exceptions import ConfigInvalidException

from switchsim import (
    DropBeforeLine,
    EmulatorServer,
    OnyxDevice,
    RefuseLine,
    SonicDevice,
    load_authorized_keys,
    load_host_key,
)
from switchsim.errors import ListenError, UsageError
from switchsim.ssh_server import MAX_CONNECTIONS
from tests.switchsim.conftest import Connect, Keys, Serve, Ssh

PASSWORD = "right"  # noqa: S105 (known to this file alone)
CONGESTION = (
    "interface ethernet 1/{} traffic-class 6 congestion-control both minimum-absolute 60 maximum-absolute 60"
)


def eventually(is_so: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_netmiko_configures_onyx(serve: Serve, connect: Connect) -> None:
    device = OnyxDevice(ports=4)
    connection = connect(serve(device))
    connection.enable()
    lines = [
        "no cli default prefix-modes enable",
        "interface ethernet 1/1-1/4 qos trust L3",
        CONGESTION.format(2),
    ]
    connection.send_config_set(lines, error_pattern=r"^%")
    assert not connection.check_config_mode()
    assert device.fact("1/4", "trust") == "L3"
    shown = connection.send_command("show interfaces ethernet 1/2 congestion-control | json-print")
    assert json.loads(str(shown))[7]["Minimum threshold"] == "60 KB"
    with pytest.raises(ConfigInvalidException):
        connection.send_config_set(["interface ethernet 1/9 qos trust L3"], error_pattern=r"(?m)^%")
    connection.save_config()
    assert device.files["initial"] == device.configuration


def test_netmiko_drives_sonic(serve: Serve, connect: Connect) -> None:
    device = SonicDevice(ports=2)
    connection = connect(serve(device))
    assert connection.find_prompt() == "admin@sonic1:~$"
    assert json.loads(str(connection.send_command("sonic-cfggen -d --print-data"))) == device.config_db
    assert "command not found" in str(connection.send_command("frobnicate"))
    assert connection.send_command("echo $?") == "127"
    assert connection.send_command("sudo config checkpoint a") == "Checkpoint created successfully."
    connection.enable()
    assert connection.send_command("config list-checkpoints") == '[\n    "a"\n]'
    connection.exit_enable_mode()
    assert connection.find_prompt() == "admin@sonic1:~$"


def test_openssh_remote_commands(serve: Serve, ssh: Ssh) -> None:
    device = SonicDevice(ports=2)
    server = serve(device)
    patch = json.dumps([{"op": "replace", "path": "/SCHEDULER/scheduler.0/weight", "value": "20"}]).encode()
    assert ssh(server, "tee /tmp/x.json > /dev/null", stdin=patch).returncode == 0
    done = ssh(server, "sudo config apply-patch /tmp/x.json")
    assert (done.returncode, done.stdout[-28:]) == (0, b"Patch applied successfully.\n")
    assert device.config_db["SCHEDULER"]["scheduler.0"]["weight"] == "20"
    refused = ssh(server, "sudo config apply-patch /dev/stdin", stdin=b"nonsense")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"Failed to apply patch" in refused.stderr


def test_openssh_terminal_on_onyx(serve: Serve, ssh: Ssh) -> None:
    device = OnyxDevice(ports=2)
    server = serve(device)
    typed = b"enable\nconfigure terminal\ninterface ethernet 1/1 qos trust L3\nexit\nexit\n"
    done = ssh(server, stdin=typed)
    assert (done.returncode, device.fact("1/1", "trust")) == (0, "L3")
    assert b"onyx1 [standalone: master] (config) # interface ethernet 1/1 qos trust L3\r\n" in done.stdout
    assert ssh(server, "show version").returncode == 1  # Onyx has no remote commands


def test_a_large_file_survives_the_way(serve: Serve, ssh: Ssh) -> None:
    data = bytes(range(256)) * 8192
    server = serve(SonicDevice(ports=1))
    assert ssh(server, "cat > /tmp/big", stdin=data).returncode == 0
    assert ssh(server, "cat /tmp/big").stdout == data


def test_only_the_authorized_key_logs_in(serve: Serve, ssh: Ssh, keys: Keys) -> None:
    server = serve(SonicDevice(ports=1))
    refused = ssh(server, "true", identity=keys.stranger)
    assert (refused.returncode, b"Permission denied (publickey)" in refused.stderr) == (255, True)
    assert ssh(server, "true").returncode == 0
    assert ssh(server, "false").returncode == 1


def test_a_wrong_host_key_is_noticed(serve: Serve, ssh: Ssh, keys: Keys) -> None:
    done = ssh(serve(SonicDevice(ports=1)), "true", known=keys.stranger)
    assert (done.returncode, b"Host key verification failed" in done.stderr) == (255, True)


@pytest.mark.parametrize(
    ("username", "password", "works"),
    [("admin", "right", True), ("admin", "wrong", False), ("root", "right", False)],
)
def test_passwords_where_a_test_gives_one(serve: Serve, username: str, password: str, works: bool) -> None:
    server = serve(OnyxDevice(ports=1), password=PASSWORD)
    with paramiko.Transport((server.address, server.port)) as transport:
        transport.start_client(timeout=60)
        if works:
            transport.auth_password(username, password)
            return
        with pytest.raises(paramiko.AuthenticationException):
            transport.auth_password(username, password)


def test_two_sessions_share_one_device(serve: Serve, connect: Connect) -> None:
    device = OnyxDevice(ports=2)
    server = serve(device)
    first, second = connect(server), connect(server)

    def configure(port: int, connection: object) -> None:
        lines = [f"interface ethernet 1/{port} qos map dscp {dscp} to switch-priority 7" for dscp in range(8)]
        connection.enable()  # type: ignore[attr-defined]  # netmiko's class, passed through a thread
        connection.send_config_set(lines, error_pattern=r"(?m)^%")  # type: ignore[attr-defined]  # as above

    threads = [threading.Thread(target=configure, args=pair) for pair in ((1, first), (2, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for port in device.ports:
        assert {device.fact(port, "switch-priority", dscp) for dscp in range(8)} == {7}


def test_many_connections_one_after_the_other(serve: Serve, ssh: Ssh) -> None:
    server = serve(SonicDevice(ports=1))
    for _ in range(MAX_CONNECTIONS + 4):
        assert ssh(server, "true").returncode == 0


def test_too_many_connections_are_turned_away(serve: Serve) -> None:
    server = serve(SonicDevice(ports=1))
    transports = [paramiko.Transport((server.address, server.port)) for _ in range(MAX_CONNECTIONS)]
    for transport in transports:
        transport.start_client(timeout=60)
    with pytest.raises((paramiko.SSHException, EOFError, OSError)):
        paramiko.Transport((server.address, server.port)).start_client(timeout=60)
    for transport in transports:
        transport.close()
    assert eventually(lambda: server.connection_count == 0)


def test_a_connection_is_lost_before_a_line(serve: Serve, ssh: Ssh) -> None:
    device = OnyxDevice(ports=4)
    server = serve(device, faults=DropBeforeLine(pattern="1/3"))
    lines = [f"interface ethernet 1/{number} qos trust L3" for number in (1, 2, 3, 4)]
    typed = "\n".join(["enable", "configure terminal", *lines, "exit", "exit", ""]).encode()
    assert ssh(server, stdin=typed).returncode == 255
    assert [device.fact(port, "trust") for port in device.ports] == ["L3", "L3", "L2", "L2"]
    assert ssh(server, stdin=typed).returncode == 0  # the second attempt works
    assert device.fact("1/4", "trust") == "L3"


def test_a_line_is_refused(serve: Serve, ssh: Ssh) -> None:
    device = SonicDevice(ports=1)
    server = serve(device, faults=RefuseLine("apply-patch", "the switch is busy"))
    done = ssh(server, "sudo config apply-patch /dev/stdin", stdin=b"[]")
    assert (done.returncode, done.stderr) == (1, b"the switch is busy\n")
    dropping = serve(device, faults=DropBeforeLine(number=1))
    assert ssh(dropping, "true").returncode == 255


def test_stop_closes_connections_and_the_port(serve: Serve, connect: Connect, keys: Keys) -> None:
    device = OnyxDevice(ports=1)
    server = serve(device)
    connection = connect(server)
    started = time.monotonic()
    server.stop()
    server.stop()
    assert time.monotonic() - started < 5
    assert eventually(lambda: not connection.is_alive())  # the client's thread has to notice
    with EmulatorServer(device, port=server.port, host_key=load_host_key(keys.host)) as other:
        assert other.port == server.port
        with pytest.raises(ListenError, match="cannot listen"):
            EmulatorServer(device, port=other.port, host_key=load_host_key(keys.host)).start()


def test_key_files(keys: Keys) -> None:
    path = keys.client.parent / "authorized_keys"
    path.write_text("# nobody\n\n" + keys.client.with_suffix(".pub").read_text())
    (key,) = load_authorized_keys(path)
    assert key.get_name() == "ssh-ed25519"
    path.write_text("ssh-ed25519 nonsense!\n")
    with pytest.raises(UsageError, match="no public key"):
        load_authorized_keys(path)
    for broken in (path, keys.client.parent / "none"):
        with pytest.raises(UsageError):
            load_host_key(broken)
    with pytest.raises(UsageError):
        load_authorized_keys(keys.client.parent / "none")


@pytest.mark.parametrize("kind", ["onyx", "sonic"])
def test_the_command_serves_until_sigterm(kind: str, keys: Keys, serve: Serve, ssh: Ssh) -> None:
    command = [
        sys.executable,
        "-m",
        "switchsim",
        "--kind",
        kind,
        "--name",
        "leaf7",
        "--ports",
        "2",
    ]
    command += ["--listen", "127.0.0.1:0", "--host-key", str(keys.host)]
    command += ["--authorized-keys", str(keys.client.with_suffix(".pub"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        remote = EmulatorServer(OnyxDevice(), port=port, host_key=load_host_key(keys.host))  # address only
        done = ssh(remote, stdin=b"show version\nexit\n")
        assert done.stdout.startswith(b"leaf7" if kind == "onyx" else b"admin@leaf7:~$ ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        (["--ports", "0"], 2),
        (["--listen", "127.0.0.1"], 2),
        (["--listen", "127.0.0.1:70000"], 2),
        (["--host-key", "/nowhere"], 2),
        (["--listen", "192.0.2.1:2222"], 3),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(changed: list[str], status: int, keys: Keys) -> None:
    command = [sys.executable, "-m", "switchsim", "--kind", "onyx", "--name", "leaf7"]
    command += ["--listen", "127.0.0.1:0", "--host-key", str(keys.host)]
    command += ["--authorized-keys", str(keys.client.with_suffix(".pub")), *changed]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
