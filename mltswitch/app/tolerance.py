"""Measures what lost gradients cost a training, and keeps it as a profile."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from mltswitch.app import Computing
from mltswitch.documents import dump_yaml
from mltswitch.outputs import check_output, write_outputs
from mltswitch.profile import profile_sha256
from mltswitch.sweep import JOURNAL_SUFFIX, Cell, executor, open_journal, run_cells
from mltswitch.training.tolerance import Measurement, Settings, describe, measure
from mltswitch.version import __version__


def measured_profile(settings: Settings, output: Path, computing: Computing) -> tuple[Path, Measurement]:
    """Measure a training's tolerance and write its profile; returns the journal's path and the measurement.

    Raises UserInputError for a task or an output that cannot be used.
    """
    check_output(output)
    profile, trainings = describe(settings)
    journal_path = output.with_name(output.name + JOURNAL_SUFFIX)
    # What trainings must have in common to stand in one journal; ratios, groups and seeds are none of it.
    common = [__version__, settings.task, settings.target, settings.ranks, profile_sha256(profile)]
    digest = hashlib.sha256(json.dumps(common).encode()).hexdigest()
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(journal_path, digest, restart=computing.restart))
        if journal.finished:
            count = len(journal.finished)
            computing.tell(f"{count} trainings were finished before ({journal_path}), and are kept")
        pool = stack.enter_context(executor(computing.processes, computing.scheduler))
        advance = stack.enter_context(computing.bar())
        asked: dict[Cell, None] = {}

        def show() -> None:
            advance("trainings", sum(cell in journal.finished for cell in asked), len(asked))

        def compute(cells: Sequence[Cell]) -> None:
            asked.update(dict.fromkeys(cells))
            show()
            run_cells(trainings, cells, journal, pool, show)

        found = measure(settings, profile, journal.finished, compute)
    write_outputs([(output, dump_yaml(found.profile))])
    return journal_path, found
