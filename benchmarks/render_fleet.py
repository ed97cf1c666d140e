"""How long a fleet of switches takes to render, and how much memory, beside Ansible's template module.

    python -m benchmarks.render_fleet [--quick] [--json]

2,000 devices (--quick: 140), the registered platforms in turn, each with 32 ports (or as many as its default
hardware has) and 8 queues (or as many as it may use). A device's time is what `mltswitch render` does for it
short of writing files: fabric expanded, plan rounded, the effect of the rounding predicted, text rendered,
parsed again and compared. Plans are made outside of the time, one by one, and nothing is kept.

Every device has a plan of its own: other thresholds and limits on each kind of port, other code points for
every class, other prefixes for hosts, links and paths, another load, other trusted ports; every fourth is a
spine, the others are leaves. So no two have a port profile, a DSCP map or a route in common, and nothing that
one leaves behind serves the next. The loss model is `paper`: each of these plans has rounded thresholds to
predict, and `completion`, the default, takes up to half a second for each.

What that means for one plan, `one_plan_seconds` says: the leaves of one fabric with eight Linux spines (no
other box has so many ports), the platforms in turn, loss model `completion`.

    seconds                      all devices
    devices                      how many
    peak_mb                      the process's greatest resident size, in MB (10^6 bytes)
    peak_half_mb                 the same after half of the devices: the rest must not add to it
    growth_mb                    peak_mb less the resident size before the first device
    ms_<platform>                milliseconds for one device, mean
    one_plan_seconds             as many devices of one plan, its fabric expanded once
    ansible_devices              how many of the first fleet's devices Ansible renders
    ansible_seconds              ansible-playbook from start to end for them
    ratio_to_ansible_template    seconds per device of Ansible over ours: above 1, mltswitch is faster

Ansible (ansible-core) renders the EOS devices of the same fleet from a Jinja2 template (ansible_eos.txt.j2),
and what it writes is compared byte by byte with ours: its template module over the local connection, as many
forks as there are cores. It does less: nothing is derived, rounded or parsed. Where `ansible-playbook` is not
installed, its figures are left out and standard error says so: pip install ansible-core.
"""

import gc
import json
import resource
import sys
from collections import defaultdict
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Final

import click

from benchmarks.ansible_template import ansible_playbook, measure_ansible
from benchmarks.fleet import fleet, one_plan
from mltswitch.__main__ import ALLOCATIONS_BETWEEN_COLLECTIONS
from mltswitch.app.rendering import render_device
from mltswitch.targets import targets

DEVICES: Final = 2000
QUICK_DEVICES: Final = 140
ANSIBLE_DEVICES: Final = 100
ANSIBLE_QUICK_DEVICES: Final = 10


def measure(devices: int) -> dict[str, float]:
    """Render so many devices, one after the other, and keep nothing of them."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for member in islice(fleet(), len(targets())):
        render_device(member.plan, member.device)  # libraries load, templates compile
    before = _resident_mb()
    half = before
    for number, member in enumerate(islice(fleet(), devices), start=1):
        started = perf_counter()
        render_device(member.plan, member.device)
        seconds[member.device.platform].append(perf_counter() - started)
        if number == devices // 2:
            half = _peak_mb()
    peak = _peak_mb()
    found = {
        "seconds": sum(sum(each) for each in seconds.values()),
        "devices": float(devices),
        "peak_mb": peak,
        "peak_half_mb": half,
        "growth_mb": peak - before,
    }
    for platform, each in sorted(seconds.items()):
        found[f"ms_{platform}"] = 1000 * sum(each) / len(each)
    return found


def measure_one_plan(devices: int) -> dict[str, float]:
    """The leaves of one fabric, the platforms in turn."""
    plan, leaves = one_plan(devices)
    started = perf_counter()
    for device in leaves:
        render_device(plan, device)
    return {"one_plan_seconds": perf_counter() - started}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


@click.command()
@click.option("--quick", is_flag=True, help="Fewer devices.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Render the fleet, then a part of it with Ansible, and print the figures."""
    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)  # as the command does
    devices = QUICK_DEVICES if quick else DEVICES
    figures = measure(devices) | measure_one_plan(devices)
    program = ansible_playbook()
    if program is None:
        print("no ratio, ansible-playbook is not installed: pip install ansible-core", file=sys.stderr)
    else:
        figures |= measure_ansible(program, ANSIBLE_QUICK_DEVICES if quick else ANSIBLE_DEVICES)
    lines = [f"{key}: {value:.4g}" for key, value in figures.items()]
    click.echo(json.dumps(figures) if as_json else "\n".join(lines))


if __name__ == "__main__":
    main()
