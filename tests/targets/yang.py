"""Public YANG models as judges of what targets render, by `yangson` and the models' files in `tests/data`."""

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from yangson import DataModel
from yangson.enumerations import ContentType
from yangson.exceptions import YangsonException

DATA: Final = Path(__file__).parents[1] / "data"
_STATEMENTS: Final = re.compile(r'^\s*(namespace|revision|belongs-to)\s+"?([^";\s]+)', re.MULTILINE)
_NOT_XPATH: Final = re.compile(r'must\s+"[^"]*text\(\)[^"]*"\s*(;|\{[^{}]*\})')
"""SONiC compares text() of leaves, which only libyang understands so; of no QoS table."""


def data_model(files: Iterable[Path], *prefixes: str) -> DataModel:
    """What these modules describe: those with a prefix by data and identities, the others by types alone."""
    modules: dict[str, dict[str, Any]] = {}
    submodules: list[tuple[str, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(files):
            text = _NOT_XPATH.sub("", path.read_text(encoding="utf-8"))
            # Of each statement the first counts: the newest revision is the first (RFC 7950, 7.1.9).
            said = dict(reversed(_STATEMENTS.findall(text)))
            module: dict[str, Any] = {"name": path.stem, "revision": said.get("revision", "")}
            file = Path(folder, "@".join(filter(None, module.values())) + ".yang")
            file.write_text(text, encoding="utf-8")
            if whole := said.get("belongs-to"):
                submodules.append((whole, module))
                continue
            kind = "implement" if path.stem.startswith(prefixes) else "import"
            module |= {"namespace": said["namespace"], "conformance-type": kind, "submodule": []}
            modules[path.stem] = module
        for whole, submodule in submodules:
            modules[whole]["submodule"].append(submodule)
        library = {"module-set-id": prefixes[0], "module": list(modules.values())}
        return DataModel(json.dumps({"ietf-yang-library:modules-state": library}), [folder])


def refusal_by(model: DataModel, document: Mapping[str, Any]) -> str | None:
    """Why the models refuse a configuration in JSON (RFC 7951); None where it is valid."""
    try:
        model.from_raw(document).validate(ctype=ContentType.config)
    except YangsonException as error:
        return f"{type(error).__name__}: {error}"
    return None
