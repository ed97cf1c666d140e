"""A throw-away Linux to try tc on: a namespace where the kernel has the queues, else user-mode-linux."""

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mltswitch.lab import xstate

BOOT_SECONDS = 180.0
COMMAND_SECONDS = 180.0
MODULES = (
    "sch_prio sch_red sch_tbf sch_drr ipv6 8021q cls_flower sch_htb sch_ingress act_pedit act_csum act_gact "
    "cls_matchall sch_netem sch_fq sch_fq_codel dummy veth"
)
PROBE = """
set -e
ip link add probe type dummy
tc -batch - <<QUEUES
qdisc add dev probe root handle 10: prio bands 2
qdisc add dev probe parent 10:1 red limit 9000 min 3000 max 3000 avpkt 1000 burst 3 probability 1 ecn
filter add dev probe parent 10: protocol ip prio 1 flower ip_tos 0x20/0xfc classid 10:1
qdisc del dev probe root
qdisc add dev probe root handle 1: tbf rate 1mbit burst 9230 limit 9230
qdisc add dev probe parent 1:1 handle 20: drr
QUEUES
ip link del probe
"""

INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/kernel/lib/modules /run/exchange
ln -s /usr/lib/uml/modules/$(uname -r) /run/kernel/lib/modules/
mount -t hostfs -o {exchange} none /run/exchange
stty raw -echo
for module in {modules}; do modprobe -d /run/kernel $module; done
ip link set lo up
echo ready
while read -r job; do
    cd /run/exchange
    sh $job.command <$job.input >$job.output 2>$job.error
    echo $? >$job.status
    sync
    echo "done $job"
done
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left behind."""

    status: int
    output: str
    error: str


class NoMachineError(Exception):
    """Neither this kernel nor user-mode-linux can hold our queues."""


class Machine(Protocol):
    """Something that runs shell commands as root, away from the host's own network."""

    def run(self, command: str, stdin: str = "") -> Answer: ...


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace of this kernel."""

    name: str
    folder: Path

    def run(self, command: str, stdin: str = "") -> Answer:
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, "sh", "-c", command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            cwd=self.folder,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)


@dataclass(slots=True)
class UserModeLinux:
    """A kernel as a process: commands travel as files, their numbers over the console."""

    exchange: Path
    process: "subprocess.Popen[bytes]"
    jobs: int = field(default=0)

    def run(self, command: str, stdin: str = "") -> Answer:
        self.jobs += 1
        job = self.exchange / str(self.jobs)
        job.with_suffix(".command").write_text(command)
        job.with_suffix(".input").write_text(stdin)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.jobs}\n".encode())
        self.process.stdin.flush()
        self.wait_for(f"done {self.jobs}", COMMAND_SECONDS)
        status = int(job.with_suffix(".status").read_text())
        return Answer(status, job.with_suffix(".output").read_text(), job.with_suffix(".error").read_text())

    def wait_for(self, mark: str, seconds: float) -> None:
        assert self.process.stdout is not None
        console, deadline = b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while f"{mark}\n".encode() not in console:
                left = deadline - time.monotonic()
                data = b""
                if left > 0 and selector.select(left):
                    data = os.read(self.process.stdout.fileno(), 65536)
                if not data:
                    raise RuntimeError(f"user-mode-linux never said {mark!r}: {console.decode()[-2000:]}")
                console += data


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A machine with prio, red, tbf and flower; raises NoMachineError saying why there is none."""
    name = f"mlt-{uuid.uuid4().hex[:8]}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0:
        try:
            namespace = Namespace(name, folder)
            if namespace.run(PROBE).status == 0:
                yield namespace
                return
        finally:
            subprocess.run(["ip", "netns", "del", name], check=True)
    with user_mode_linux(folder) as instance:
        yield instance


@contextlib.contextmanager
def user_mode_linux(folder: Path) -> Iterator[UserModeLinux]:
    """A kernel of its own; raises NoMachineError saying why there is none."""
    program = shutil.which("linux.uml")
    if program is None or shutil.which("modprobe") is None:
        raise NoMachineError(
            "this kernel lacks prio, red, tbf or flower, and linux.uml or modprobe is missing"
        )
    environment = dict(os.environ)
    if xstate.needed():
        if xstate.compiler() is None:
            raise NoMachineError("user-mode-linux needs a C compiler on processors with AMX")
        environment["LD_PRELOAD"] = str(xstate.build(folder))
    exchange = folder / "exchange"
    exchange.mkdir()
    init = folder / "init"
    init.write_text(INIT.format(exchange=exchange, modules=MODULES))
    init.chmod(0o755)
    arguments = ["mem=96M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}"]
    process = subprocess.Popen(
        [program, *arguments, "con=null", "con0=fd:0,fd:1", "quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )
    try:
        instance = UserModeLinux(exchange, process)
        instance.wait_for("ready", BOOT_SECONDS)
        yield instance
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
