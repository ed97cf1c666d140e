"""`mltswitch agent keys`: a job's CA, and a certificate with its key for each host."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import click

from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.certificates import IpAddress, now_utc, parse_address
from mltswitch.hostagent.control.keys import MAXIMUM_DAYS, JobKeys, days_left, make_keys
from mltswitch.plan import load_plan

DEFAULT_DAYS = 30
DEFAULT_AUTHORITY_DAYS = 365


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent keys host1 host2 -o job\n"
    "  mltswitch agent keys --plan plan.yaml -o job\n"
    "  mltswitch agent keys host3 --address host3=10.10.0.10 -o job\n"
    "  mltswitch agent keys host1 --force -o job"
)
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Every host of this plan.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The job's folder.",
)
@click.option(
    "--days",
    type=click.IntRange(1, MAXIMUM_DAYS),
    default=DEFAULT_DAYS,
    show_default=True,
    help="Validity of hosts' certificates. Short: nothing revokes one.",
)
@click.option(
    "--ca-days",
    "authority_days",
    type=click.IntRange(1, MAXIMUM_DAYS),
    default=DEFAULT_AUTHORITY_DAYS,
    show_default=True,
    help="Validity of the CA, where this makes one.",
)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST=IP",
    help="Name an IP address in the host's certificate, too; agents go by the name.",
)
@click.option("--force", is_flag=True, help="New keys for hosts that have some. The CA stays.")
@json_option
def keys(
    names: tuple[str, ...],
    plan_file: Path | None,
    output: Path,
    days: int,
    authority_days: int,
    addresses: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Make the keys with which the agents of one job know each other.

    The first call makes the job's CA in OUTPUT/ca. Each host gets a folder OUTPUT/hosts/HOST: copy it to that
    host, and to no other. Whoever has OUTPUT/ca/key.pem can be any host: keep OUTPUT/ca off the training
    hosts. A later call with more hosts adds them to the job.
    """
    hosts = _with_addresses(_names(names, plan_file), addresses)
    now = now_utc()
    made = make_keys(output, hosts, days=days, authority_days=authority_days, now=now, replace=force)
    if as_json:
        print_json(
            {
                "authority": {
                    "certificate": made.authority_certificate,
                    "key": made.authority_key,
                    "expires": made.authority_expires.isoformat(),
                    "is_new": made.authority_is_new,
                },
                "hosts": [
                    {
                        "name": host.name,
                        "folder": host.folder,
                        "expires": host.expires.isoformat(),
                        "is_new": host.is_new,
                    }
                    for host in made.hosts
                ],
            }
        )
    else:
        _print(made, now)
    _warn(made)


def _names(names: Iterable[str], plan_file: Path | None) -> list[str]:
    planned = []
    if plan_file is not None:
        planned = [host.name for host in load_plan(plan_file).topology.hosts]
    return list(dict.fromkeys([*planned, *names]))


def _with_addresses(names: Iterable[str], addresses: Iterable[str]) -> dict[str, list[IpAddress]]:
    hosts: dict[str, list[IpAddress]] = {name: [] for name in names}
    for entry in addresses:
        name, separator, address = entry.partition("=")
        if not separator or name not in hosts:
            known = ", ".join(list(hosts)[:5]) or "none"
            raise UserInputError(
                "names no host that keys are made for",
                where=f"--address {entry[:80]}",
                expected=f"HOST=IP, {known}",
            )
        hosts[name].append(parse_address(address))
    return hosts


def _print(made: JobKeys, now: datetime) -> None:
    rows = [
        (host.name, host.folder, f"{host.expires:%Y-%m-%d %H:%M} UTC", _state(host.is_new, host.expires, now))
        for host in made.hosts
    ]
    console().print(table("Copy each folder to its host", ("host", "folder", "valid until", "keys"), rows))
    state = "new" if made.authority_is_new else "as before"
    click.echo(f"CA ({state}): {made.authority_certificate}, valid until {made.authority_expires:%Y-%m-%d}")


def _state(is_new: bool, expires: datetime, now: datetime) -> str:
    if is_new:
        return "new"
    left = days_left(expires, now)
    return f"kept, {left} days left" if left >= 0 else "kept, expired (--force makes new ones)"


def _warn(made: JobKeys) -> None:
    progress(f"{made.authority_key}: whoever has it can be any host; keep it off the training hosts")
