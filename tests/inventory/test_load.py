"""The inventory loader: precedence, what is refused and how, and the lab's own inventory."""

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.inventory import Device, Inventory, load_inventory

LAB = Path(__file__).parents[2] / "inventories" / "lab"
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
        load_inventory(path)
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
    assert inventory.devices[0].groups == ("all", "switches", "linux")
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
        password_variable=None,
        groups=("all",),
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


# Each place where Ansible lets a variable stand, weakest first ("Understanding variable precedence").
PLACES = (
    "inline all",
    "inline parent",
    "inline child",
    "group_vars/all",
    "group_vars/parent",
    "group_vars/child",
    "inline host",
    "host_vars",
)


def inventory_with(folder: Path, places: tuple[str, ...]) -> Path:
    """An inventory that sets the user to the index of the place, at each of these places."""

    def user(place: str) -> dict[str, str]:
        return {"ansible_user": f"user{PLACES.index(place)}"} if place in places else {}

    child = {"vars": user("inline child"), "hosts": {"leaf1": user("inline host")}}
    parent = {"vars": user("inline parent"), "children": {"child": child}}
    return write(
        folder,
        {
            "hosts.yaml": {"all": {"vars": user("inline all"), "children": {"parent": parent}}},
            "group_vars/all.yaml": user("group_vars/all") | {"mltswitch_platform": "linux"},
            "group_vars/parent.yml": user("group_vars/parent"),
            "group_vars/child.yaml": user("group_vars/child"),
            "host_vars/leaf1.yaml": user("host_vars"),
        },
    )


@pytest.mark.parametrize(("weaker", "stronger"), list(pairwise(PLACES)))
def test_precedence_step_by_step(tmp_path: Path, weaker: str, stronger: str) -> None:
    [device] = load_inventory(inventory_with(tmp_path, (weaker, stronger))).devices
    assert device.user == f"user{PLACES.index(stronger)}"


@given(places=st.sets(st.sampled_from(PLACES), min_size=1))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_strongest_place_wins(tmp_path_factory: pytest.TempPathFactory, places: set[str]) -> None:
    folder = inventory_with(tmp_path_factory.mktemp("inventory"), tuple(places))
    [device] = load_inventory(folder).devices
    assert device.user == f"user{max(PLACES.index(place) for place in places)}"


def test_groups_of_equal_depth_go_by_name_and_the_longest_way_counts(tmp_path: Path) -> None:
    text = """
all:
  children:
    a: {vars: {ansible_user: a}, hosts: {leaf1: }, children: {deep: {hosts: {leaf1: }}}}
    b: {vars: {ansible_user: b}, hosts: {leaf1: {mltswitch_platform: linux}}}
    deep: {vars: {ansible_user: deep}, hosts: {leaf2: {mltswitch_platform: linux}}}
b: {hosts: {leaf3: {mltswitch_platform: linux}}}
"""
    inventory = load_inventory(write(tmp_path, {"hosts.yml": text}))
    found = {device.name: (device.user, device.groups) for device in inventory.devices}
    assert found == {
        "leaf1": ("deep", ("all", "a", "b", "deep")),
        "leaf2": ("deep", ("all", "a", "deep")),
        "leaf3": ("b", ("all", "b")),
    }


def test_selection(tmp_path: Path) -> None:
    inventory = load_inventory(LAB)

    def names(limit: str | None) -> list[str]:
        return [device.name for device in inventory.select(limit)]

    assert names(None) == ["spine1", "spine2", "leaf1", "leaf2", "onyx1", "sonic1"]
    assert names("sonic,leaf1") == ["leaf1", "sonic1"]
    assert names(" leaf1 , linux,") == ["spine1", "spine2", "leaf1", "leaf2"]
    assert names("all") == names(None)
    for limit, line in {
        "leaf9": "--limit: no device or group 'leaf9' in ",
        "leaf1,!leaf2": "--limit: no device or group '!leaf2' in ",
        "": "no device is selected",
        ",": "no device is selected",
    }.items():
        with pytest.raises(UserInputError, match=line):
            inventory.select(limit)
    with pytest.raises(UserInputError, match="no device is selected"):
        Inventory((), tmp_path).select()


def test_a_host_without_a_platform(tmp_path: Path) -> None:
    text = refused(one_host(tmp_path, {"ansible_user": "root"}))
    assert text.startswith(f"{tmp_path}/hosts.yaml: leaf1: has no platform: neither mltswitch_platform nor ")
    assert "linux, onyx, sonic" in text


def test_an_error_names_the_file_that_the_value_comes_from(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "hosts.yaml": {"all": {"hosts": {"leaf1": MINIMAL}}},
            "group_vars/all.yaml": {"ansible_port": 70_000},
        },
    )
    text = refused(tmp_path)
    assert text.startswith(f"{tmp_path}/group_vars/all.yaml: leaf1: ansible_port: ")
    assert text.endswith("not 70000")


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("ansible_host", "10.0.0.1\nroot", "control character"),
        ("ansible_host", "-oProxyCommand=id", "have no place there"),
        ("ansible_host", "", "have no place there"),
        ("ansible_host", ["10.0.0.1"], "is not text"),
        ("ansible_user", "root\x1b[2J", "control character"),
        ("ansible_user", "root;reboot", "have no place there"),
        ("ansible_user", "-l", "have no place there"),
        ("ansible_user", 0, "is not text"),
        ("ansible_user", "{{ lookup('env', 'USER') }}", "is a Jinja expression"),
        ("ansible_port", "22\n", "control character"),
        ("ansible_port", 0, "greater than or equal to 1"),
        ("ansible_port", True, "no whole number"),
        ("ansible_port", 22.0, "no whole number"),
        ("ansible_port", 10**30, "a value of type int"),
        ("ansible_ssh_private_key_file", "id\u2028", "control character"),
        ("ansible_ssh_private_key_file", "id\u202e", "control character"),
        ("ansible_ssh_private_key_file", "", "empty or too long"),
        ("ansible_ssh_private_key_file", "~no-such-user-here/id", "home directory"),
        ("mltswitch_known_hosts_file", "{% if x %}a{% endif %}", "is a Jinja expression"),
        ("mltswitch_platform", "ios", "unknown platform 'ios' (expected one of "),
        ("mltswitch_platform", "../../etc", "have no place there"),
        ("mltswitch_switch", "leaf1\r", "control character"),
        ("mltswitch_platfrom", "linux", "is not a variable that mltswitch knows"),
        ("mltswitch_\n", "linux", "is not a variable that mltswitch knows"),
        ("ansible_group_priority", 10, "is not a variable that mltswitch knows"),
        ("ansible_password", "tr0ub4dor&3", "name an environment variable in mltswitch_password_env"),
        ("ansible_become_password", "tr0ub4dor&3", "does not belong into an inventory"),
        ("mltswitch_password_env", "tr0ub4dor&3", "have no place there"),
        ("mltswitch_password_env", ["tr0ub4dor&3"], "is not text"),
    ],
)
def test_a_value_that_is_refused(tmp_path: Path, variable: str, value: object, part: str) -> None:
    text = refused(one_host(tmp_path, MINIMAL | {variable: value}))
    assert part in text
    assert f"{tmp_path}/hosts.yaml: leaf1: " in text
    assert "tr0ub4dor" not in text


def test_a_missing_user(tmp_path: Path) -> None:
    text = refused(one_host(tmp_path, {"mltswitch_platform": "linux"}))
    assert text == f"{tmp_path}/hosts.yaml: leaf1: ansible_user: is missing"


def doubling(levels: int) -> str:
    """Groups that each have two children with one body: 2^levels ways from `all` to the host."""
    lines = ["g0: &g0 {hosts: {leaf1: {mltswitch_platform: linux, ansible_user: root}}}"]
    lines += [f"g{n}: &g{n} {{children: {{a{n}: *g{n - 1}, b{n}: *g{n - 1}}}}}" for n in range(1, levels + 1)]
    return "\n".join(lines)


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
    assert "hosts.yaml: leaf1: ansible_host: is a Unix socket, and platform linux is reached by SSH" in text


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
    assert f"hosts.yaml: leaf1: ansible_host: {address} is another machine" in text
    assert "mltswitch_plaintext_grpc: true" in text
    [device] = load_inventory(one_host(tmp_path, variables | {"mltswitch_plaintext_grpc": True})).devices
    assert device.address == address


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("mltswitch_device_id", 0),
        ("mltswitch_device_id", 2**64),
        ("mltswitch_thrift_port", -1),
        ("mltswitch_plaintext_grpc", "yes"),
        ("mltswitch_plaintext_grpc", 1),
        ("ansible_host", "unix:relative"),
        ("ansible_host", "unix:/a b"),
    ],
)
def test_a_p4runtime_value_that_is_refused(tmp_path: Path, variable: str, value: object) -> None:
    assert f"leaf1: {variable}: " in refused(one_host(tmp_path, BMV2 | {variable: value}))


def test_aliases_do_not_multiply_the_work(tmp_path: Path) -> None:
    [device] = load_inventory(write(tmp_path, {"hosts.yaml": doubling(30)})).devices
    assert len(device.groups) == 1 + 31 + 2 * 30


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
        ("all: {hosts: {'leaf[1:4]': }}\n", "ranges are not expanded"),
        ("all: {hosts: {'../leaf1': }}\n", "is no host name"),
        ('all: {hosts: {"leaf1\\nleaf2": }}\n', "is no host name"),
        ("all: {children: {'a b': }}\n", "is no group name"),
        ("all: {host: {leaf1: }}\n", "unknown section 'host' (expected one of hosts, vars, children)"),
        ("all: {children: {a: {children: {a: }}}}\n", "group a stands below itself"),
        ("all: {children: {a: {children: {all: }}}}\n", "group all stands below itself"),
        ("a: {children: {b: }}\nb: {children: {a: }}\n", "stand below themselves"),
        ("a: &a {children: {b: *a}}\n", "stands below itself"),
        ("a: &a {children: {b: {children: {c: *a}}}}\n", "stands below itself"),
        ("a: {hosts: {a: }}\n", "a is both a host and a group"),
        ("plugin: aws_ec2\n", "dynamic inventory"),
        ("all: {hosts: {leaf1: {x: !vault abc}}}\n", "Ansible tag (!vault, !unsafe)"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "is encrypted by Ansible Vault"),
        ("all: {hosts: {leaf1: !!python/object/apply:os.system ['true']}}\n", "not valid YAML"),
        ("x: {" + "children: {x: {" * 3000 + "}}" * 3000 + "}\n", ""),
        (doubling(60), "nested more than 32 deep"),
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
        ("hosts.yml", "", "has both hosts.yaml and hosts.yml"),
        ("group_vars/lnux.yaml", "", "has no group 'lnux'"),
        ("host_vars/leaf9.yaml", "", "has no host 'leaf9'"),
        ("host_vars/leaf1/main.yaml", "", "Put its variables into leaf1.yaml"),
        ("group_vars/all.yaml", "- a\n", "group_vars/all.yaml: is a list"),
        ("group_vars/all.yaml", "ansible_port: 1\nansible_port: 2\n", "all.yaml:2:1"),
        ("group_vars/all.yaml", "x: !vault |\n  $ANSIBLE_VAULT\n", "Ansible tag"),
    ],
)
def test_a_file_beside_it_that_is_refused(tmp_path: Path, name: str, content: str, part: str) -> None:
    one_host(tmp_path, MINIMAL)
    assert part in refused(write(tmp_path, {name: content}))


def test_two_files_for_one_group(tmp_path: Path) -> None:
    one_host(tmp_path, MINIMAL)
    write(tmp_path, {"group_vars/all.yaml": "", "group_vars/all.yml": ""})
    assert "all.yaml stands beside it" in refused(tmp_path)


def test_other_files_beside_it_do_not_matter(tmp_path: Path) -> None:
    one_host(tmp_path, MINIMAL)
    write(tmp_path, {"group_vars/README.md": "- no variables", "fabric.yaml": "x: 1"})
    assert len(load_inventory(tmp_path).devices) == 1


@pytest.mark.parametrize("name", ["hosts", "hosts.ini", "inventory.py"])
def test_another_kind_of_inventory(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "[switches]\nleaf1\n"})
    assert "is no YAML inventory" in refused(tmp_path / name)
    assert "has no hosts.yaml" in refused(tmp_path)


def test_a_missing_path(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(tmp_path / "none.yaml")
    assert "cannot be read: No such file" in refused(tmp_path / "none")


def test_a_password_variable_that_is_not_set_is_found_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [device] = load_inventory(one_host(tmp_path, MINIMAL | {"mltswitch_password_env": "hunter2"})).devices
    monkeypatch.delenv("hunter2", raising=False)
    with pytest.raises(UserInputError, match="leaf1: the environment variable") as caught:
        device.password()
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("hunter2", "tr0ub4dor&3")
    password = device.password()
    assert password is not None
    assert password.get_secret_value() == "tr0ub4dor&3"
    assert "tr0ub4dor" not in f"{password} {password!r} {device} {dataclasses.asdict(device)}"


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
