"""The small loader, the values of variables, `--limit` and the lab; test_corpus.py has the rest."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.inventory import Device, load_inventory
from mltswitch.inventory.ansible import ansible_program

LAB = Path(__file__).parents[2] / "inventories" / "lab"


@pytest.fixture(autouse=True)
def _small_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without ansible-core."""
    monkeypatch.setattr("mltswitch.inventory.load.ansible_program", lambda: None)


MINIMAL = {"mltswitch_platform": "linux", "ansible_user": "root"}


def write(folder: Path, files: dict[str, Any]) -> Path:
    """An inventory folder; a value is YAML text, or data for it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return folder


def one_host(folder: Path, variables: dict[str, Any]) -> Path:
    return write(folder, {"hosts.yaml": {"all": {"hosts": {"leaf1": variables}}}})


def refused(path: Path) -> str:
    with pytest.raises(UserInputError) as caught:
        load_inventory(path).select()
    text = str(caught.value)
    assert "\n" not in text
    assert text.isprintable()
    return text


def test_the_lab() -> None:
    inventory = load_inventory(LAB)
    found = {device.name: (device.platform, device.endpoint, device.user) for device in inventory.devices}
    assert found == {
        "spine1": ("linux", "127.77.0.1:2222", "root"),
        "spine2": ("linux", "127.77.0.2:2222", "root"),
        "leaf1": ("linux", "127.77.0.11:2222", "root"),
        "leaf2": ("linux", "127.77.0.12:2222", "root"),
        "onyx1": ("onyx", "127.77.0.21:2222", "admin"),
        "sonic1": ("sonic", "127.77.0.31:2222", "admin"),
    }
    assert {device.key_file for device in inventory.devices} == {LAB / ".lab/keys/id_ed25519"}
    assert {device.known_hosts_file for device in inventory.devices} == {LAB / ".lab/known_hosts"}
    assert inventory.devices[0].groups == ("all", "linux", "switches")
    assert load_inventory(LAB / "hosts.yaml").devices == inventory.devices


def test_defaults(tmp_path: Path) -> None:
    [device] = load_inventory(one_host(tmp_path, MINIMAL)).devices
    assert device == Device(
        name="leaf1",
        platform="linux",
        switch="leaf1",
        address="leaf1",
        port=22,
        user="root",
        key_file=None,
        known_hosts_file=Path.home() / ".ssh/known_hosts",
        password=None,
        groups=("all", "ungrouped"),
    )


def test_every_variable(tmp_path: Path) -> None:
    variables = {
        "ansible_host": "2001:db8::7",
        "ansible_port": "2022",
        "ansible_user": "admin",
        "ansible_ssh_private_key_file": "keys/id",
        "ansible_network_os": "mellanox.onyx.onyx",
        "mltswitch_platform": "linux",
        "mltswitch_known_hosts_file": "/etc/ssh/ssh_known_hosts",
        "mltswitch_switch": "spine2",
        "mltswitch_password_env": "RACK_PASSWORD",
        "ansible_become": True,
        "ntp_servers": ["{{ site_ntp }}", None],
    }
    [device] = load_inventory(one_host(tmp_path, variables)).devices
    assert device.endpoint == "[2001:db8::7]:2022"
    assert (device.platform, device.switch, device.user) == ("linux", "spine2", "admin")
    assert device.key_file == tmp_path / "keys/id"
    assert device.known_hosts_file == Path("/etc/ssh/ssh_known_hosts")
    assert "RACK_PASSWORD" not in repr(device)


PATTERNS = {
    None: "spine1 spine2 leaf1 leaf2 onyx1 sonic1",
    "sonic,leaf1": "leaf1 sonic1",
    " leaf1 , linux,": "spine1 spine2 leaf1 leaf2",
    "all": "spine1 spine2 leaf1 leaf2 onyx1 sonic1",
    "*": "spine1 spine2 leaf1 leaf2 onyx1 sonic1",
    "leaf*": "leaf1 leaf2",
    "l*": "spine1 spine2 leaf1 leaf2",
    "leaf?,onyx": "leaf1 leaf2 onyx1",
    "linux:!leaf2": "spine1 spine2 leaf1",
    "!linux": "onyx1 sonic1",
    "!linux,!onyx": "sonic1",
    "&linux,!spine*": "leaf1 leaf2",
    "switches:&linux:!leaf1": "spine1 spine2 leaf2",
    "~(leaf|spine)[12]$": "spine1 spine2 leaf1 leaf2",
    "~s": "spine1 spine2 leaf1 leaf2 onyx1 sonic1",
    "leaf1:spine1": "spine1 leaf1",
    "[sl]*1": "spine1 leaf1 sonic1",
    "onyx1,onyx": "onyx1",
}


@pytest.mark.parametrize("limit", PATTERNS)
def test_selection(limit: str | None) -> None:
    selected = {device.name for device in load_inventory(LAB).select(limit)}
    assert selected == {*PATTERNS[limit].split()}
    program = ansible_program()
    if program is not None and limit is not None:
        command = [program, "-i", str(LAB / "hosts.yaml"), "--list", "--limit", limit]
        done = subprocess.run(command, capture_output=True, check=True, cwd="/")
        assert selected == json.loads(done.stdout)["_meta"]["hostvars"].keys()


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        ("leaf9", "--limit: no device or group 'leaf9' "),
        ("leaf1,!leaf9", "--limit: no device or group 'leaf9' "),
        ("leaf1,&", "--limit: no device or group '' "),
        ("linux[0]", r"--limit: 'linux\[0\]' is a position"),
        ("linux[0:1]", "is a position, which depends on the order"),
        ("~(", "--limit: no device or group "),
        ("@file", "--limit: no device or group "),
        ("leaf1:!linux", "no device is selected"),
        ("", "no device is selected"),
        (",", "no device is selected"),
    ],
)
def test_what_selects_nothing(limit: str, line: str) -> None:
    with pytest.raises(UserInputError, match=line):
        load_inventory(LAB).select(limit)


RACK: dict[str, Any] = {
    "hosts.yaml": {
        "all": {
            "children": {
                "eos": {"hosts": {"leaf1": MINIMAL | {"mltswitch_platform": "eos"}}},
                "broken": {"hosts": {"leaf2": {"mltswitch_platform": "eos"}, "leaf3": {"ansible_user": 1}}},
                "routers": {"hosts": {"r1": None, "r2": {"ansible_connection": "httpapi"}}},
                "servers": {"hosts": {"gpu1": {"ansible_ssh_executable": "plink"}}},
            }
        }
    },
    "group_vars/routers.yaml": {"ansible_network_os": "cisco.ios.ios"},
    "group_vars/broken.yaml": {"mltswitch_platform": "onix"},
}
LEFT_OUT = (
    "hosts that are no switches of ours are left out: 1 without a platform (gpu1), "
    "2 of platform 'cisco.ios.ios' (r1, r2)"
)


def test_hosts_of_other_platforms_are_counted_and_left_out(tmp_path: Path) -> None:
    inventory = load_inventory(write(tmp_path, RACK))
    for limit, lines in {"eos": [], "all:!broken": [LEFT_OUT]}.items():
        assert [device.name for device in inventory.select(limit)] == ["leaf1"]
        assert list(inventory.left_out(limit)) == lines
    with pytest.raises(
        UserInputError, match=r"no device is selected: hosts that are no switches .* \(r1, r2\)"
    ):
        inventory.select("routers")


@pytest.mark.parametrize("name", ["r1", "spine7"])
def test_a_host_that_the_fabric_names_is_ours(tmp_path: Path, name: str) -> None:
    switch = {"host_vars/r1.yaml": {"mltswitch_switch": "spine7"}}
    inventory = load_inventory(write(tmp_path, RACK | switch))
    with pytest.raises(
        UserInputError, match=r"routers.yaml: r1: ansible_network_os: unknown platform 'cisco"
    ):
        inventory.select("eos,r1", {"leaf1", name})
    assert len(inventory.select("eos,r2", {"leaf1", name})) == 1


def test_everything_that_is_wrong_is_told_at_once_and_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(UserInputError) as caught:
        load_inventory(write(tmp_path, RACK)).select()
    number, first, second = caught.value.lines()
    assert number == "2 errors"
    assert first.startswith(f"{tmp_path}/hosts.yaml: leaf2: ansible_user: is missing")
    assert second.startswith(f"{tmp_path}/hosts.yaml: leaf3: ansible_user: ")
    with pytest.raises(UserInputError) as caught:
        load_inventory(tmp_path).refuse_foreign("servers,routers")
    assert [line.partition(" (expected")[0] for line in caught.value.lines()] == [
        "2 errors",
        f"{tmp_path}/hosts.yaml: gpu1: has no platform: neither mltswitch_platform nor "
        "ansible_network_os is set",
        f"{tmp_path}/group_vars/routers.yaml: r1: ansible_network_os: unknown platform 'cisco.ios.ios'",
    ]
    assert caught.value.lines()[2].endswith("(1 more like it: r2: ansible_network_os)")


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("ansible_host", "10.0.0.1\nroot", "control character"),
        ("ansible_host", "-oProxyCommand=id", "have no place there"),
        ("ansible_host", "", "have no place there"),
        ("ansible_host", ["10.0.0.1"], "is neither text nor"),
        ("ansible_user", "root\x1b[2J", "control character"),
        ("ansible_user", "root;reboot", "have no place there"),
        ("ansible_user", "-l", "have no place there"),
        ("ansible_user", 0, "must be text"),
        ("ansible_user", "{{ lookup('env', 'USER') }}", "is a Jinja expression"),
        ("ansible_port", "22\n", "control character"),
        ("ansible_port", 0, "must be at least 1"),
        ("ansible_port", True, "no whole number"),
        ("ansible_port", 22.5, "is neither text nor a whole number"),
        ("ansible_port", 10**30, "a value of type int"),
        ("ansible_ssh_private_key_file", "id\u2028", "control character"),
        ("ansible_ssh_private_key_file", "id\u202e", "control character"),
        ("ansible_ssh_private_key_file", "", "empty or too long"),
        ("ansible_ssh_private_key_file", "~no-such-user-here/id", "home directory"),
        ("mltswitch_known_hosts_file", "{% if x %}a{% endif %}", "is a Jinja expression"),
        ("mltswitch_platform", "linus", "unknown platform 'linus', did you mean linux? (expected one of "),
        ("mltswitch_platform", "../../etc", "have no place there"),
        ("mltswitch_switch", "leaf1\r", "control character"),
        ("mltswitch_platfrom", "linux", "is not a variable that mltswitch knows"),
        ("mltswitch_\n", "linux", "is not a variable that mltswitch knows"),
        ("ansible_password", "tr0ub4dor&3", "name an environment variable in mltswitch_password_env"),
        ("ansible_become_password", "tr0ub4dor&3", "does not belong into an inventory"),
        ("mltswitch_password_env", "tr0ub4dor&3", "have no place there"),
        ("mltswitch_password_env", ["tr0ub4dor&3"], "is neither text"),
    ],
)
def test_a_value_that_is_refused(tmp_path: Path, variable: str, value: object, part: str) -> None:
    text = refused(one_host(tmp_path, MINIMAL | {variable: value}))
    assert part in text
    assert f"{tmp_path}/hosts.yaml: leaf1: " in text
    assert "tr0ub4dor" not in text


def test_a_missing_user(tmp_path: Path) -> None:
    text = refused(one_host(tmp_path, {"mltswitch_platform": "linux"}))
    assert text.startswith(f"{tmp_path}/hosts.yaml: leaf1: ansible_user: is missing. Say in the inventory")


BMV2 = {"mltswitch_platform": "bmv2", "ansible_host": "127.0.0.1"}


def test_nobody_logs_in_at_a_p4runtime_switch(tmp_path: Path) -> None:
    [device] = load_inventory(one_host(tmp_path, BMV2)).devices
    assert (device.endpoint, device.user, device.key_file) == ("127.0.0.1:9559", "", None)
    assert (device.device_id, device.thrift_port) == (1, 9090)
    given = {"ansible_port": 50051, "mltswitch_device_id": 7, "mltswitch_thrift_port": 0}
    [device] = load_inventory(one_host(tmp_path, BMV2 | given)).devices
    assert (device.port, device.device_id, device.thrift_port) == (50051, 7, 0)


def test_a_unix_socket_has_no_port_and_thrift_behind_it_is_said(tmp_path: Path) -> None:
    socket = BMV2 | {"ansible_host": "unix:/run/leaf1/p4runtime"}
    [device] = load_inventory(one_host(tmp_path, socket)).devices
    assert (device.endpoint, device.thrift_port) == ("unix:/run/leaf1/p4runtime", 0)
    [device] = load_inventory(one_host(tmp_path, socket | {"mltswitch_thrift_port": 9091})).devices
    assert device.thrift_port == 9091
    text = refused(one_host(tmp_path, MINIMAL | {"ansible_host": "unix:/run/leaf1/p4runtime"}))
    assert ": leaf1: ansible_host: is a Unix socket, and platform linux is reached by SSH" in text


@pytest.mark.parametrize("address", ["127.0.0.1", "127.77.0.1", "::1", "localhost", "unix:/run/p4"])
def test_plaintext_stays_on_this_machine(tmp_path: Path, address: str) -> None:
    [device] = load_inventory(one_host(tmp_path, BMV2 | {"ansible_host": address})).devices
    assert device.address == address


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "leaf1", "::2", "2001:db8::1", "localhost.example", "10.0.0.1"]
)
def test_plaintext_to_another_machine_is_somebodys_decision(tmp_path: Path, address: str) -> None:
    variables = BMV2 | {"ansible_host": address}
    text = refused(one_host(tmp_path, variables))
    assert f": leaf1: ansible_host: {address} is another machine" in text
    assert "mltswitch_plaintext_grpc: true" in text
    [device] = load_inventory(one_host(tmp_path, variables | {"mltswitch_plaintext_grpc": True})).devices
    assert device.address == address


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("mltswitch_device_id", 0),
        ("mltswitch_device_id", 2**64),
        ("mltswitch_thrift_port", -1),
        ("mltswitch_plaintext_grpc", "perhaps"),
        ("mltswitch_plaintext_grpc", 2),
        ("ansible_host", "unix:relative"),
        ("ansible_host", "unix:/a b"),
    ],
)
def test_a_p4runtime_value_that_is_refused(tmp_path: Path, variable: str, value: object) -> None:
    assert f"leaf1: {variable}: " in refused(one_host(tmp_path, BMV2 | {variable: value}))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "lists no host"),
        ("all:\n", "lists no host"),
        ("- leaf1\n", "is a list (expected a mapping"),
        ("all: {hosts: [leaf1]}\n", "all.hosts: is a list"),
        ("all: {hosts: {leaf1: , leaf1: }}\n", "the key 'leaf1' stands twice"),
        ("all: {hosts: {1: }}\n", "the name 1 is not text. Put it in quotes"),
        ("all: {hosts: {? [a] : }}\n", "not valid YAML"),
        (
            "all: {hosts: {'leaf[1:4]': }}\n",
            "only ansible-core reads that. Install it: pip install ansible-core",
        ),
        ("all: {hosts: {'leaf1:22': }}\n", "only ansible-core"),
        ('all: {hosts: {"leaf1\\nleaf2": }}\n', "is no plain name"),
        ("all: {host: {leaf1: }}\n", "unknown section 'host' (expected hosts, vars, children)"),
        ("all: {children: {a: {children: {a: }}}}\n", "group a stands in two places"),
        ("all: {children: {a: {children: {all: }}}}\n", "group all stands in two places"),
        ("a: {children: {b: }}\nb: {hosts: {c: }}\n", "group b stands in two places: only ansible-core"),
        ("ungrouped: {hosts: {b: }}\n", "only ansible-core"),
        ("a: &a {children: {b: *a}}\n", "an alias stands before the end of what it names"),
        ("a: &a {hosts: {x: }}\n" + "b: {<<: *a}\n", "only ansible-core"),
        ("a: {hosts: {a: }}\n", "a is both a host and a group"),
        ("a: {vars: {ansible_group_priority: 2}}\n", "only ansible-core"),
        ("plugin: aws_ec2\n", "dynamic inventory: only ansible-core"),
        ("all: {hosts: {leaf1: {x: !vault abc}}}\n", "only ansible-core"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "is encrypted by Ansible Vault: only ansible-core"),
        ("all: {hosts: {leaf1: !!python/object/apply:os.system ['true']}}\n", "not valid YAML"),
        (
            "".join(f"{'  ' * n}g{n}: {{children: {{" for n in range(40)) + "}}" * 40,
            "nested more than 32 deep",
        ),
        ("x: {" + "children: {x: {" * 3000 + "}}" * 3000 + "}\n", ""),
        ("all: {hosts: {leaf1: \x07}}\n", "not valid YAML"),
    ],
)
def test_a_main_file_that_is_refused(tmp_path: Path, text: str, part: str) -> None:
    line = refused(write(tmp_path, {"hosts.yaml": text}))
    assert part in line
    assert line.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("group_vars/all.json", "{}", "only ansible-core"),
        ("group_vars/all", "", "only ansible-core"),
        ("hosts.yml", "", "only ansible-core"),
        ("group_vars/lnux.yaml", "", "has no group 'lnux'"),
        ("host_vars/leaf9.yaml", "", "has no host 'leaf9'"),
        ("host_vars/leaf1/main.yaml", "", "is a folder of variables"),
        ("group_vars/all.yaml", "- a\n", "group_vars/all.yaml: is a list"),
        ("group_vars/all.yaml", "ansible_port: 1\nansible_port: 2\n", "all.yaml:2:1"),
        ("group_vars/all.yaml", "x: !vault |\n  $ANSIBLE_VAULT\n", "only ansible-core"),
    ],
)
def test_a_file_beside_it_that_is_refused(tmp_path: Path, name: str, content: str, part: str) -> None:
    one_host(tmp_path, MINIMAL)
    assert part in refused(write(tmp_path, {name: content}))


def test_two_files_for_one_group(tmp_path: Path) -> None:
    one_host(tmp_path, MINIMAL)
    write(tmp_path, {"group_vars/all.yaml": "", "group_vars/all.yml": ""})
    assert "all.yml: is a second file of its name" in refused(tmp_path)


def test_other_files_beside_it_do_not_matter(tmp_path: Path) -> None:
    one_host(tmp_path, MINIMAL)
    write(
        tmp_path,
        {"group_vars/README.md": "- no variables", "fabric.yaml": "# rack 7\nschema: mltswitch/fabric/v1\n"},
    )
    assert len(load_inventory(tmp_path).devices) == 1


@pytest.mark.parametrize("name", ["hosts", "hosts.ini", "inventory.py"])
def test_another_kind_of_inventory(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "[switches]\nleaf1\n"})
    for path in (tmp_path / name, tmp_path):
        assert "only ansible-core reads that" in refused(path)


def test_several_inventories_need_ansible(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="is one of several inventories: only ansible-core"):
        load_inventory(LAB, LAB)


def test_a_missing_path(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(tmp_path / "none.yaml")
    assert "cannot be read: No such file" in refused(tmp_path / "none")


def test_a_password_variable_that_is_not_set_is_found_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = MINIMAL | {"mltswitch_password_env": "hunter2"}
    secret = load_inventory(one_host(tmp_path, variables)).devices[0].password
    assert secret is not None
    monkeypatch.delenv("hunter2", raising=False)
    with pytest.raises(UserInputError, match="leaf1: the environment variable") as caught:
        secret.read("leaf1")
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("hunter2", "tr0ub4dor&3")
    password = secret.read("leaf1")
    assert password.get_secret_value() == "tr0ub4dor&3"
    assert "tr0ub4dor" not in f"{password} {password!r} {secret}"


KEYS = st.sampled_from(
    [
        "all",
        "hosts",
        "vars",
        "children",
        "leaf1",
        "a",
        "b",
        "ansible_host",
        "ansible_port",
        "ansible_user",
        "mltswitch_platform",
        "mltswitch_password_env",
        "ansible_ssh_private_key_file",
        "plugin",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.binary(max_size=4)
    | st.sampled_from(["linux", "root", "{{ x }}", "~", "10.0.0.1"])
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS | st.text(max_size=3) | st.integers() | st.none(), inner, max_size=5)
    ),
    max_leaves=25,
)


@given(main=TREES, group=TREES, host=TREES)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_tree_is_devices_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, main: object, group: object, host: object
) -> None:
    folder = tmp_path_factory.mktemp("inventory")
    write(folder, {"hosts.yaml": yaml.safe_dump(main), "group_vars/all.yaml": yaml.safe_dump(group)})
    write(folder, {"host_vars/leaf1.yaml": yaml.safe_dump(host)})
    loads_or_one_line(folder)


@given(text=st.text(max_size=200) | st.text("{}[]:,&*!|>-'\"# \n\tabhostsvr", max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_text_is_devices_or_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "hosts.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    loads_or_one_line(folder)


def loads_or_one_line(folder: Path) -> None:
    try:
        inventory = load_inventory(folder)
    except UserInputError as error:
        assert "\n" not in str(error)
    else:
        assert inventory.devices
        assert all(str(device.known_hosts_file).isprintable() for device in inventory.devices)


def test_what_would_be_read_for_ever_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "group_vars"
    folder.mkdir()
    os.mkfifo(folder / "all")
    (tmp_path / "hosts.yaml").write_text("all: {hosts: {leaf1: }}")
    for path in (tmp_path, tmp_path / "hosts.yaml", folder / "all"):
        with pytest.raises(UserInputError, match="is no regular file"):
            load_inventory(path)


def test_what_is_hidden_in_a_folder_is_not_looked_at(tmp_path: Path) -> None:
    """As Ansible has it; a running lab keeps sockets there."""
    hidden = tmp_path / ".lab" / "work"
    hidden.mkdir(parents=True)
    os.mkfifo(hidden / "console")
    variables = "{ansible_network_os: eos, ansible_user: admin, mltswitch_password_env: SECRET}"
    (tmp_path / "hosts.yaml").write_text(f"all: {{hosts: {{leaf1: {variables}}}}}")
    assert [device.name for device in load_inventory(tmp_path).devices] == ["leaf1"]
