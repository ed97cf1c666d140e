"""A host alone: its kernel, buffers, clock and processors, as far as a job needs them."""

import os
import platform
import socket
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError, MltswitchError
from mltswitch.hostagent import native
from mltswitch.hostagent.doctor.clocks import ClockQuality, clock_quality
from mltswitch.hostagent.doctor.findings import Finding, Status
from mltswitch.hostagent.doctor.interfaces import setting
from mltswitch.hostagent.doctor.settings import SEGMENTS_MODE, SOURCE_ROUTE_MODE, DoctorSettings
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.features import KernelFeatures, kernel_features
from mltswitch.hostagent.network.sockets import BufferSize, open_socket, set_segments

_SYSTEM: Final = Path("/sys/devices/system")
_STATUS: Final = Path("/proc/thread-self/status")
# linux/capability.h
_CAP_NET_ADMIN: Final = 12
_CAP_NET_RAW: Final = 13
FAST_CLOCK_SOURCES: Final = (
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "timebase",
)
"""Read without a system call, in tens of nanoseconds."""
SLOW_READING_NS: Final = 1_000
"""A clock behind a system call and a bus; agents read it some times for every burst."""
COARSE_NS: Final = 10_000
"""Delays between hosts of one data centre are of this size."""
STEADY_DRIVERS: Final = ("intel_pstate", "amd-pstate-epp")
"""Where `powersave` means that the processor chooses by its load (Linux, admin-guide/pm/intel_pstate)."""
OPTIONAL_PACKAGES: Final = {
    "cryptography": "where keys are made (mltswitch agent keys)",
    "prometheus_client": "for the metrics endpoint of a job's agent",
}
"""Of the extra `agent`, and what they are for."""
_LOOPBACK: Final = "127.0.0.1"
_TRAFFIC_BYTES: Final = range(256)
_SECONDS: Final = 1.0


def machine_findings(settings: DoctorSettings) -> tuple[Finding, ...]:
    """Everything that needs no network; takes a tenth of a second."""
    try:
        libc.require_supported_machine()
    except MachineError as error:
        return (Finding("machine", Status.PROBLEM, str(error), "no agent runs here", "use another host"),)
    features = kernel_features()
    return (
        _versions(features),
        *_offload(features),
        *_buffers(settings.buffer_bytes),
        _traffic_class(),
        _segment_routing(settings),
        _raw_frames(settings.mode),
        *_clock(clock_quality()),
        *_processors(),
        _compiled_passes(),
        *_packages(),
    )


def _versions(features: KernelFeatures) -> Finding:
    seen = f"Linux {features.kernel_release}, Python {platform.python_version()}, {platform.machine()}"
    return Finding("versions", Status.OK, seen)


def _offload(features: KernelFeatures) -> Iterator[Finding]:
    yield Finding(
        "segmentation (UDP_SEGMENT)",
        Status.OK if features.segmentation else Status.WARNING,
        "works" if features.segmentation else "the kernel does not cut bursts",
        "" if features.segmentation else "one system call for few packets: several times the processor time",
        "" if features.segmentation else "Linux 4.18 or newer",
    )
    yield Finding(
        "coalescing (UDP_GRO)",
        Status.OK if features.coalescing else Status.WARNING,
        "works" if features.coalescing else "the kernel does not join received packets",
        "" if features.coalescing else "receiving costs more processor time, and full buffers lose packets",
        "" if features.coalescing else "Linux 5.0 or newer",
    )
    yield Finding(
        "pacing (SO_TXTIME)",
        Status.OK if features.pacing else Status.WARNING,
        "works where the queueing discipline is fq" if features.pacing else "the kernel does not know it",
        "" if features.pacing else "the agent itself times its bursts, more coarsely",
        "" if features.pacing else "Linux 4.19 or newer",
    )
    if not features.drop_counts:
        yield Finding(
            "drop counts (SO_MEMINFO)",
            Status.WARNING,
            "the kernel does not tell what a full socket dropped",
            "losses on this host look like losses on the network",
            "Linux 4.12 or newer",
        )


def _buffers(wanted_bytes: int) -> Iterator[Finding]:
    opened = open_socket((_LOOPBACK,), 0, receive_buffer_bytes=wanted_bytes, send_buffer_bytes=wanted_bytes)
    opened.socket.close()
    yield _buffer("receive buffer", opened.receive_buffer)
    yield _buffer("send buffer", opened.send_buffer)


def _buffer(subject: str, size: BufferSize) -> Finding:
    seen = f"{size.granted_bytes:,} bytes granted of {size.wanted_bytes:,} wanted"
    if size.granted_bytes >= size.wanted_bytes:
        return Finding(subject, Status.OK, seen)
    meaning = (
        "peers keep less under way, and bursts that this process sleeps through are lost"
        if subject.startswith("receive")
        else "fewer packets wait in the kernel, so that sending stops and starts"
    )
    return Finding(
        subject,
        Status.WARNING,
        seen,
        meaning,
        f"as root: sysctl -w {size.setting}={size.wanted_bytes}, and a line in /etc/sysctl.d for ever",
    )


def _traffic_class() -> Finding:
    """Every one of the 256 bytes, through the loopback interface."""
    subject = "DSCP and ECN per datagram"
    kept = 0
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind((_LOOPBACK, 0))
        receiver.settimeout(_SECONDS)
        receiver.setsockopt(socket.IPPROTO_IP, libc.IP_RECVTOS, 1)
        sender.connect(receiver.getsockname())
        try:
            for byte in _TRAFFIC_BYTES:
                sender.sendmsg((b"?",), ((socket.IPPROTO_IP, libc.IP_TOS, bytes((byte, 0, 0, 0))),))
                _, controls, _, _ = receiver.recvmsg(16, 64)
                kept += any(content[:1] == bytes((byte,)) for _, _, content in controls)
        except OSError as error:
            return Finding(
                subject,
                Status.PROBLEM,
                f"stopped after {kept} of 256 values: {error.strerror or error}",
                "classes and importance cannot be told to switches",
                "look for a packet filter or a sandbox on this host",
            )
    whole, privileged = kept == len(_TRAFFIC_BYTES), has_capability(_CAP_NET_ADMIN)
    return Finding(
        subject,
        Status.OK if whole else Status.PROBLEM,
        f"{kept} of 256 values set and told to the receiver{'' if privileged else ', without privileges'}",
        "" if whole else "classes and importance cannot be told to switches",
        "" if whole else "look for a packet filter on the loopback interface",
    )


def _segment_routing(settings: DoctorSettings) -> Finding:
    subject = "segment routing (SRv6)"
    wanted = settings.mode == SEGMENTS_MODE
    enabled = setting("ipv6", "conf", "all", "seg6_enabled")
    if enabled is None:
        return Finding(
            subject,
            Status.PROBLEM if wanted else Status.OK,
            "the kernel has none, or no IPv6",
            "the mode srv6 does not work here" if wanted else "the mode srv6 alone needs it",
            "take another mode, or a kernel with CONFIG_IPV6_SEG6_LWTUNNEL" if wanted else "",
        )
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            set_segments(probe, ["::1"])
    except (OSError, MltswitchError):
        sticky = "sockets cannot carry segment lists"
    else:
        sticky = "sockets can carry segment lists"
    seen = f"seg6_enabled={enabled}, {sticky}"
    if wanted and not enabled:
        return Finding(
            subject,
            Status.PROBLEM,
            seen,
            "this host drops packets with a segment list, and the mode is srv6",
            "as root, the lines of: mltswitch agent paths --setup",
        )
    return Finding(subject, Status.OK, seen, "" if wanted else "the mode srv6 alone needs it")


def _raw_frames(mode: str) -> Finding:
    subject = "raw frames (CAP_NET_RAW)"
    held = has_capability(_CAP_NET_RAW)
    seen = "held" if held else "not held"
    if mode != SOURCE_ROUTE_MODE or held:
        return Finding(
            subject, Status.OK, seen, "" if mode == SOURCE_ROUTE_MODE else "the mode p4 alone needs it"
        )
    return Finding(
        subject,
        Status.PROBLEM,
        seen,
        "the mode p4 sends whole frames, and may not",
        "setpriv --reuid USER --init-groups --inh-caps +net_raw --ambient-caps +net_raw -- COMMAND",
    )


def has_capability(number: int) -> bool:
    """Whether the calling thread has it in effect."""
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> number & 1)
    return False


def _clock(quality: ClockQuality) -> Iterator[Finding]:
    source = read_line(_SYSTEM / "clocksource" / "clocksource0" / "current_clocksource")
    known = source in FAST_CLOCK_SOURCES
    slow = quality.reading_ns > SLOW_READING_NS and not known
    yield Finding(
        "clock source",
        Status.WARNING if slow else Status.OK,
        f"{source or 'not told'}, {quality.reading_ns:.0f} ns a reading",
        "every datagram's time stamp costs a slow read" if slow else "",
        "boot with clocksource=tsc where the processor's is stable (journalctl -k says why it is not used)"
        if slow
        else "",
    )
    coarse = quality.resolution_ns > COARSE_NS
    yield Finding(
        "clock resolution",
        Status.WARNING if coarse else Status.OK,
        f"smallest step {quality.resolution_ns:,} ns",
        "delays that steer the rate cannot be seen" if coarse else "",
        "take another clock source" if coarse else "",
    )


def _processors() -> Iterator[Finding]:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 0
    yield Finding(
        "processors",
        Status.WARNING if usable < 2 else Status.OK,
        f"{usable} of {present} usable by this process",
        "the agent's thread and the job's take turns" if usable < 2 else "",
        "give the process another core (taskset, cpuset)" if usable < 2 else "",
    )
    governors = _frequency("scaling_governor")
    drivers = _frequency("scaling_driver")
    if not governors:
        yield Finding("processor frequency", Status.OK, "not told here (a virtual machine, mostly)")
        return
    saving = "powersave" in governors and not drivers <= set(STEADY_DRIVERS)
    yield Finding(
        "processor frequency",
        Status.WARNING if saving else Status.OK,
        f"governor {', '.join(sorted(governors))} ({', '.join(sorted(drivers)) or 'driver not told'})",
        "cores stay slow, and the agent with them" if saving else "",
        "as root: cpupower frequency-set -g performance" if saving else "",
    )


def _frequency(name: str) -> set[str]:
    files = (_SYSTEM / "cpu").glob(f"cpu[0-9]*/cpufreq/{name}")
    return {line for line in map(read_line, files) if line}


def _compiled_passes() -> Finding:
    subject = "compiled passes"
    if native.LIBRARY is not None:
        return Finding(subject, Status.OK, "in use")
    anew = "install a C compiler, then: pip install --no-cache-dir --force-reinstall --no-deps mltswitch"
    return Finding(
        subject,
        Status.WARNING,
        native.PROBLEM,
        "numpy does the same, with a third more processor time at the receiver",
        f"unset {native.OFF}" if native.PROBLEM == native.UNWANTED else anew,
    )


def _packages() -> Iterator[Finding]:
    for name, use in OPTIONAL_PACKAGES.items():
        try:
            yield Finding(f"package {name}", Status.OK, f"version {version(name)}")
        except PackageNotFoundError:
            yield Finding(f"package {name}", Status.OK, "not installed", f"needed only {use}")


def read_line(path: Path) -> str:
    """What a small file of the kernel's says; empty where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
