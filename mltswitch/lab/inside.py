"""What runs as root inside a rootless lab's user-mode-linux: builds the lab, then serves commands."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from mltswitch.errors import MltswitchError
from mltswitch.lab import spool, uml
from mltswitch.lab.lab import Lab
from mltswitch.lab.model import DeviceAddress
from mltswitch.lab.rootless import REQUEST
from mltswitch.plan.fabric import Fabric


def main(arguments: list[str]) -> int:
    """`serve DIRECTORY` or `status DIRECTORY`; returns an exit code."""
    verb, directory = arguments
    lab = Lab(Path(directory))
    try:
        if verb == "status":
            sys.stdout.write(json.dumps(asdict(lab.status())))
            return 0
        request = json.loads((lab.paths.root / REQUEST).read_text(encoding="utf-8"))
        fabric = Fabric.model_validate(request["fabric"])
        lab.up(fabric, [DeviceAddress(**device) for device in request["devices"]], progress=_say)
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
