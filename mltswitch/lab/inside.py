"""What runs as root inside a rootless lab's user-mode-linux: builds the lab, then serves commands."""

import sys
from pathlib import Path

from mltswitch.errors import MltswitchError
from mltswitch.lab import spool, uml
from mltswitch.lab.lab import Lab
from mltswitch.lab.rootless import REQUEST, STATUS
from mltswitch.lab.state import LabState


def main(arguments: list[str]) -> int:
    """Run `serve DIRECTORY` or `status DIRECTORY` inside user-mode-linux; returns an exit code."""
    verb, directory = arguments
    lab = Lab(Path(directory))
    try:
        if verb == "status":
            sys.stdout.buffer.write(STATUS.dump_json(lab.status()))
            return 0
        request = LabState.model_validate_json((lab.paths.root / REQUEST).read_bytes())
        lab.up(request.fabric, request.devices, progress=_say)
    except MltswitchError as error:
        _say(f"error: {error}")
        _say(uml.FAILED_LINE)
        return error.exit_code
    _say(uml.READY_LINE)
    spool.serve(lab.paths.spool)
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
