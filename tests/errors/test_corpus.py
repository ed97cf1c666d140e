"""Bad input: each case of the files beside this module ends in the line that the user must see.

A case in a table is a good file with one change: a field is `set`, a `drop` or a `rename` of one, or another
`text` of a file, where `long` so many `times` stands for its ellipsis; `see` is what stands in what is
printed. A file in `raw` says it in its first line.
"""

import copy
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from mltswitch.cli import main
from mltswitch.cli.verbose import MOST_LINES
from mltswitch.documents import MAXIMUM_DOCUMENT_BYTES, dump_yaml
from mltswitch.profile import resolve_profile
from tests.conftest import LAB_FABRIC

FOLDER: Final = Path(__file__).parent
INVENTORY: Final = LAB_FABRIC.parent
PLAN: Final = ("plan", "--profile", "vgg16", "--model", "paper", "--force", "--fabric")
PLANNED: Final = (0, 5)
"""Exit codes of a plan that was written; 5: it leaves losses beyond the tolerance."""
MOST_SECONDS: Final = 5.0
"""Of the processor, for one case."""
HANGS_AFTER_SECONDS: Final = 60
QUEUE: Final = {"share": 0.5, "limit_packets": 100}
LINK: Final = {"rate": "5Mbps", "delay_seconds": 0.03, "loss": 0.01, "queue": "64kB"}
WAN: Final = {
    "schema": "mltswitch/wan/v1",
    "nodes": ["a", "b", "c"],
    "links": [{"source": one, "target": other} | LINK for one, other in ("ab", "ba", "bc", "cb")],
}
PROBLEM: Final = {
    "load": 0.9,
    "buffer_packets": 300,
    "queues": [QUEUE | {"unimportant": 0.5, "ecn_threshold_packets": 10, "burst_packets": 8}, QUEUE],
}


def table(name: str) -> list[Any]:
    cases = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return [pytest.param(case, id=f"{name}-{number}") for number, case in enumerate(cases)]


def changed(base: Any, case: dict[str, Any]) -> str:
    """The base document with a case's change."""
    data = copy.deepcopy(base)
    operation = next(iter(case))
    *above, last = [int(part) if part.isdigit() else part for part in case[operation].split(".")]
    place = data
    for part in above:
        place = place[part]
    if operation == "set":
        place[last] = case["to"]
    else:
        value = place.pop(last)
        if operation == "rename":
            place[case["to"]] = value
    return yaml.safe_dump(data, sort_keys=False)


class Session:
    """Commands in a folder of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def run(self, *arguments: object) -> tuple[object, str]:
        """Exit code and standard error of one command."""
        signal.alarm(HANGS_AFTER_SECONDS)  # it ends the whole run, for what hangs cannot be told from here
        try:
            with pytest.raises(SystemExit) as end:
                main([str(argument) for argument in arguments])
        finally:
            signal.alarm(0)
        return end.value.code, self._capsys.readouterr().err

    def is_refused(self, see: str | list[str], *arguments: object) -> None:
        """Exit code 2, the lines that are to be seen, and nothing written."""
        before = sorted(self.folder.rglob("*"))
        begun = time.process_time()
        code, said = self.run(*arguments)
        assert time.process_time() - begun < MOST_SECONDS
        assert code == 2, said
        assert "Traceback" not in said
        assert "bug:" not in said
        assert said.replace("\n", "").isprintable()
        assert [text for text in ([see] if isinstance(see, str) else see) if text not in said] == [], said
        assert sorted(self.folder.rglob("*")) == before
        lines = [line for line in said.splitlines() if not line.startswith("warning: ")]
        assert len(lines) == 1 or lines[0].endswith(" errors")
        assert len(lines) <= MOST_LINES


@pytest.fixture
def session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Session:
    return Session(tmp_path, capsys)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plan") / "plan.yaml"
    with pytest.raises(SystemExit) as end:
        main([*PLAN, str(LAB_FABRIC), "-o", str(file)])
    assert end.value.code in PLANNED
    return file


def bad_file(session: Session, text: str) -> Path:
    file = session.folder / "bad.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("case", table("fabric"))
def test_fabrics(session: Session, case: dict[str, Any]) -> None:
    file = bad_file(session, changed(yaml.safe_load(LAB_FABRIC.read_text()), case))
    session.is_refused(case["see"], *PLAN, file, "-o", session.folder / "plan.yaml")


@pytest.mark.parametrize("case", table("plan"))
def test_plans(session: Session, plan_file: Path, case: dict[str, Any]) -> None:
    file = bad_file(session, changed(yaml.safe_load(plan_file.read_text()), case))
    session.is_refused(case["see"], "render", file, "-i", INVENTORY, "-o", session.folder / "out")


@pytest.mark.parametrize("command", ["push", "verify", "diff"])
@pytest.mark.parametrize(
    ("file", "see"),
    [
        (LAB_FABRIC, "is a fabric document, not a plan document"),
        (INVENTORY / "hosts.yaml", "is not a plan document"),
    ],
)
def test_other_documents_than_a_plan(session: Session, command: str, file: Path, see: str) -> None:
    code, said = session.run(command, file, "-i", INVENTORY)
    assert (code, said) == (2, f"mltswitch: {file}: {see} (expected schema: mltswitch/plan/v2)\n")


def test_a_plan_is_no_inventory(session: Session, plan_file: Path) -> None:
    session.is_refused(f"{plan_file}: is a plan document, no inventory", "diff", plan_file, "-i", plan_file)


@pytest.mark.parametrize("case", table("problem"))
def test_problems(session: Session, case: dict[str, Any]) -> None:
    session.is_refused(case["see"], "loss", "--spec", bad_file(session, changed(PROBLEM, case)))


@pytest.mark.parametrize("case", table("profile"))
def test_profiles(session: Session, case: dict[str, Any]) -> None:
    file = bad_file(session, changed(yaml.safe_load(dump_yaml(resolve_profile("resnet50"))), case))
    session.is_refused(case["see"], "plan", "--profile", file, "--fabric", LAB_FABRIC)


@pytest.mark.parametrize("case", table("inventory"))
def test_inventories(session: Session, plan_file: Path, case: dict[str, Any]) -> None:
    inventory = session.folder / "inventory"
    shutil.copytree(INVENTORY, inventory, ignore=shutil.ignore_patterns(".lab"))
    (inventory / case["file"]).write_text(
        case["text"].replace("…", case.get("long", "") * case.get("times", 0))
    )
    session.is_refused(case["see"], "render", plan_file, "-i", inventory, "-o", session.folder / "out")


FOREIGN: Final = {
    "spine9": {"ansible_network_os": "cisco.ios.ios"},
    "leaf9": {"mltswitch_platform": "linux", "ansible_port": "none"},
}


@pytest.mark.parametrize(
    ("options", "see"),
    [
        (
            ("--limit", "other", "--strict"),
            ["2 errors", "spine9: ansible_network_os: unknown platform 'cisco.ios"],
        ),
        (
            ("--limit", "spine9"),
            "no device is selected: hosts that are no switches of ours are left out: 1 of pl",
        ),
        (("--limit", "leaf9"), "rack/hosts.yaml: leaf9: ansible_port: "),
    ],
)
def test_hosts_of_other_platforms(
    session: Session, plan_file: Path, options: tuple[str, ...], see: str | list[str]
) -> None:
    rack = session.folder / "rack"
    shutil.copytree(INVENTORY, rack, ignore=shutil.ignore_patterns(".lab"))
    hosts = yaml.safe_load((rack / "hosts.yaml").read_text())
    hosts["all"]["children"]["other"] = {"hosts": FOREIGN}
    (rack / "hosts.yaml").write_text(yaml.safe_dump(hosts))
    session.is_refused(see, "render", plan_file, "-i", rack, "-o", session.folder / "out", *options)
    code, said = session.run(
        "render", plan_file, "-i", rack, "-o", session.folder / "all", "--limit", "all:!leaf9"
    )
    assert (code, "left out: 1 of platform 'cisco.ios.ios' (spine9)" in said) == (0, True), said


@pytest.mark.parametrize("case", table("agent"))
def test_configurations_of_agents(session: Session, case: dict[str, Any]) -> None:
    session.is_refused(case["see"], "agent", "doctor", "-c", bad_file(session, case["text"]))


@pytest.mark.parametrize("case", table("wan"))
def test_wans(session: Session, case: dict[str, Any]) -> None:
    session.is_refused(case["see"], "lab", "wan", "up", bad_file(session, changed(WAN, case)))


@pytest.mark.parametrize("case", table("counters"))
def test_counters(session: Session, case: dict[str, Any]) -> None:
    file = bad_file(session, case["text"])
    session.is_refused(case["see"], "traffic", "fit", file, "--rate", "10Gbps", "--mtu", "1500")


@pytest.mark.parametrize("file", sorted((FOLDER / "raw").iterdir()), ids=lambda file: file.stem)
def test_raw_files(session: Session, file: Path) -> None:
    see = file.read_text().splitlines()[0].removeprefix("# expect: ")
    session.is_refused(see, *PLAN, file, "-o", session.folder / "plan.yaml")


BYTES: Final = {
    "empty": (b"", "is empty"),
    "spaces": (b" \n \n", "is empty"),
    "nul": (b"name: lab\0\n", "not valid YAML"),
    "escape": (b"name: \x1b[2J\n", "not valid YAML"),
    "latin-1": (b"name: caf\xe9\n", "is not UTF-8 text"),
    "utf-16": ("name: lab\n".encode("utf-16"), "is not UTF-8 text"),
    "byte order mark": (b"\xef\xbb\xbfname: two words\n", "name: must match the pattern"),
    "line ends of Windows": (
        b"name: two words\r\nports: 3\r\n",
        ["6 errors", "bad.yaml:1: name", "and 3 more: `--verbose` shows them"],
    ),
    "surrogate": (b"name: \xed\xa0\x80\n", "is not UTF-8 text"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00", "is not UTF-8 text"),
    "50 MB list": (b"- 1\n" * 13_000_000, f"larger than {MAXIMUM_DOCUMENT_BYTES} bytes"),
    "long line": (b"name: " + b"x" * 10**6, "name: must match the pattern"),
    "long key": (b"name: lab\n" + b"x" * 900 + b": 1\n", "is no field that is known here"),
    "many dashes": (b"- " * 100_000, "more than 100 levels deep"),
}


@pytest.mark.parametrize(("content", "see"), BYTES.values(), ids=BYTES)
def test_bytes(session: Session, content: bytes, see: str | list[str]) -> None:
    file = session.folder / "bad.yaml"
    file.write_bytes(content)
    session.is_refused(see, *PLAN, file, "-o", session.folder / "plan.yaml")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)
        listener.bind(path.name)


FILES: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "missing": (lambda path: None, "cannot be read: No such file"),
    "pipe": (os.mkfifo, "is no regular file"),
    "folder": (Path.mkdir, "is no regular file"),
    "loop of links": (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "cannot be read: No such file"),
    "endless device": (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), "bad.yaml: "),
    "memory of a process": (lambda path: path.symlink_to("/proc/self/mem"), "bad.yaml: "),
    "socket": (unix_socket, "bad.yaml: "),
}
READERS: Final = (
    lambda file: (*PLAN, file),
    lambda file: ("plan", "--profile", file, "--fabric", LAB_FABRIC),
    lambda file: ("render", file, "-i", INVENTORY, "-o", file.with_name("out")),
    lambda file: ("loss", "--spec", file),
    lambda file: ("lab", "wan", "up", file),
    lambda file: ("agent", "doctor", "-c", file),
    lambda file: ("traffic", "fit", file, "--rate", "10Gbps"),
)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("make", "see"), FILES.values(), ids=FILES)
def test_files_that_are_none(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    reader: Callable[[Path], tuple[object, ...]],
    make: Callable[[Path], object],
    see: str,
) -> None:
    monkeypatch.chdir(session.folder)
    file = session.folder / "bad.yaml"
    make(file)
    see = "bad.yaml" if reader is READERS[-1] else see
    session.is_refused(see, *reader(file))
