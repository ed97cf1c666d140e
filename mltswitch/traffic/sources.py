"""Fits traffic from any supported file, which may be a capture or counters."""

from pathlib import Path
from typing import Final

from mltswitch.documents import open_regular
from mltswitch.errors import UserInputError
from mltswitch.traffic.capture import Progress
from mltswitch.traffic.counters import COLUMNS, fit_counters, is_counters
from mltswitch.traffic.document import Traffic
from mltswitch.traffic.fit import FitSettings, fit_capture
from mltswitch.traffic.records import is_capture

BEGINNING_BYTES: Final = 512
GZIP: Final = b"\x1f\x8b"


def fit_traffic(path: Path, settings: FitSettings, on_progress: Progress | None = None) -> Traffic:
    """The traffic in a pcap, a pcapng, or in queue counters (CSV or JSON lines).

    Raises:
        UserInputError: the file is none of these, is damaged, or says too little.
    """
    with open_regular(path) as stream:
        beginning = stream.read(BEGINNING_BYTES)
    if is_capture(beginning):
        return fit_capture(path, settings, on_progress)
    if is_counters(beginning):
        return fit_counters(path, settings, on_progress)
    if not beginning:
        raise UserInputError("is empty", where=str(path))
    if beginning.startswith(GZIP):
        raise UserInputError("is compressed", where=str(path), hint="unpack it with gunzip")
    raise UserInputError(
        "is neither a capture nor queue counters",
        where=str(path),
        expected=f"pcap, pcapng, CSV with the columns {', '.join(COLUMNS)}, or JSON lines",
    )
