"""Seals a plan with hashes that tell whether anybody changed it after the planner made it."""

import hashlib
import json
from pathlib import Path
from typing import Any

from mltswitch.documents import load_document, sha256
from mltswitch.errors import UserInputError
from mltswitch.plan.document import Plan


def sealed(plan: Plan) -> Plan:
    """The plan with the hashes of its fabric and of its whole content filled in."""
    provenance = plan.provenance.model_copy(update={"fabric_sha256": sha256(plan.fabric)})
    current = plan.model_copy(update={"provenance": provenance})
    return _with_hash(current, _content_sha256(current))


def load_plan(path: Path, *, accepts_edits: bool = False) -> Plan:
    """A plan from a file, checked by its hashes to be as the planner made it.

    Args:
        path: the plan's file.
        accepts_edits: accept a plan that was changed by hand, too; its predictions are those from before.

    Raises:
        UserInputError: the file is no plan, or one that was changed by hand.
    """
    plan = load_document(path, Plan)
    if accepts_edits:
        return plan
    hint = f"`mltswitch plan --edited {path} --profile … -o {path}` takes it, and predicts it anew"
    if plan.provenance.fabric_sha256 != sha256(plan.fabric):
        raise UserInputError("the fabric in it was changed by hand", where=f"{path}: fabric", hint=hint)
    if plan.provenance.content_sha256 != _content_sha256(plan):
        raise UserInputError(
            "it was changed by hand since it was planned: its content_sha256 does not fit",
            where=str(path),
            hint=hint,
        )
    return plan


def _with_hash(plan: Plan, content_sha256: str) -> Plan:
    provenance = plan.provenance.model_copy(update={"content_sha256": content_sha256})
    return plan.model_copy(update={"provenance": provenance})


def _content_sha256(plan: Plan) -> str:
    content: Any = _with_hash(plan, "").model_dump(mode="json", by_alias=True)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
