"""`mltswitch agent keys`: a job's CA, and a certificate with its key for each host."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.hostagent.security.credentials import CERTIFICATE_FILE, KEY_FILE
from mltswitch.hostagent.security.keys import JobKeys, KeyFolder, make_keys
from mltswitch.plan import load_plan

_DAYS: Final = click.IntRange(1, 3650)


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent keys host1 host2 -o job\n"
    "  mltswitch agent keys --plan plan.yaml -o job\n"
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
    type=_DAYS,
    default=30,
    show_default=True,
    help="Validity of hosts' certificates. Short: nothing revokes one.",
)
@click.option(
    "--ca-days",
    "authority_days",
    type=_DAYS,
    default=365,
    show_default=True,
    help="Validity of the CA, where this makes one.",
)
@click.option("--force", is_flag=True, help="New keys for hosts that have some. The CA stays.")
@json_option
def keys(
    names: tuple[str, ...],
    plan_file: Path | None,
    output: Path,
    days: int,
    authority_days: int,
    force: bool,
    as_json: bool,
) -> None:
    """Make the keys with which the agents of one job know each other.

    The first call makes the job's CA in OUTPUT/ca. Each host gets a folder OUTPUT/hosts/HOST: copy it to that
    host, and to no other. Whoever has OUTPUT/ca/key.pem can be any host: keep OUTPUT/ca off the training
    hosts. A later call with more hosts adds them to the job.
    """
    planned = [host.name for host in load_plan(plan_file).topology.hosts] if plan_file else []
    made = make_keys(output, [*planned, *names], days=days, authority_days=authority_days, replace=force)
    authority = made.authority
    if as_json:
        print_json(
            {
                "authority": {
                    "certificate": authority.folder / CERTIFICATE_FILE,
                    "key": authority.folder / KEY_FILE,
                    "expires": authority.expires.isoformat(),
                    "is_new": authority.is_new,
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
        _print(made)
    progress(f"{authority.folder / KEY_FILE}: whoever has it can be any host; keep it off the training hosts")


def _print(made: JobKeys) -> None:
    rows = [
        (host.name, host.folder, f"{host.expires:%Y-%m-%d %H:%M} UTC", _state(host)) for host in made.hosts
    ]
    console().print(table("Copy each folder to its host", ("host", "folder", "valid until", "keys"), rows))
    state = "new" if made.authority.is_new else "as before"
    file = made.authority.folder / CERTIFICATE_FILE
    click.echo(f"CA ({state}): {file}, valid until {made.authority.expires:%Y-%m-%d}")


def _state(host: KeyFolder) -> str:
    left = (host.expires - datetime.now(UTC)) // timedelta(days=1)
    if host.is_new:
        return "new"
    return f"kept, {left} days left" if left >= 0 else "kept, expired (--force makes new ones)"
