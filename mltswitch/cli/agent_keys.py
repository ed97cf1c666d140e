"""`mltswitch agent keys`: a job's CA, and a certificate with its key for each host."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.hostagent.security.keys import KeyFolder, make_keys
from mltswitch.hostagent.security.tls import CERTIFICATE_FILE, KEY_FILE
from mltswitch.plan import load_plan

COLUMNS: Final = ("host", "folder", "valid until", "keys")
_DAYS: Final[dict[str, Any]] = {"type": click.IntRange(1, 3650), "show_default": True}
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent keys host1 host2 -o job\n"
    "  mltswitch agent keys --plan plan.yaml -o job\n"
    "  mltswitch agent keys host1 --force -o job"
)
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Every host of this plan.")
@click.option("-o", "--output", required=True, type=_FOLDER, help="The job's folder.")
@click.option("--days", default=30, **_DAYS, help="Of hosts' certificates. Short: nothing revokes one.")
@click.option("--ca-days", "authority_days", default=365, **_DAYS, help="Of the CA, where this makes one.")
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
    authority, hosts = made.authority, made.hosts
    certificate, key = authority.folder / CERTIFICATE_FILE, authority.folder / KEY_FILE
    if as_json:
        shown, *others = (
            asdict(each) | {"expires": each.expires.isoformat()} for each in (authority, *hosts)
        )
        print_json({"authority": shown | {"certificate": certificate, "key": key}, "hosts": others})
    else:
        rows = [
            (each.name, each.folder, f"{each.expires:%Y-%m-%d %H:%M} UTC", _state(each)) for each in hosts
        ]
        console().print(table("Copy each folder to its host", COLUMNS, rows))
        state = "new" if authority.is_new else "as before"
        click.echo(f"CA ({state}): {certificate}, valid until {authority.expires:%Y-%m-%d}")
    progress(f"{key}: whoever has it can be any host; keep it off the training hosts")


def _state(host: KeyFolder) -> str:
    left = (host.expires - datetime.now(UTC)) // timedelta(days=1)
    if host.is_new:
        return "new"
    return f"kept, {left} days left" if left >= 0 else "kept, expired (--force makes new ones)"
