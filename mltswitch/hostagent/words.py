"""Texts of a user's, and of what a user's code has raised: whatever they hold, they can be sent."""

from mltswitch.errors import MltswitchError


def encodable(text: str) -> str:
    """With question marks for halves of surrogate pairs, which UTF-8 does not have."""
    return text.encode(errors="replace").decode()


def words_of(error: BaseException) -> str:
    """An error of ours says all itself; of others their type is told, too."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  (even its text is a user's code)
        return encodable(f"raised {name}, whose text cannot be had")
    if not isinstance(error, MltswitchError):
        text = f"raised {name}: {text}" if text else f"raised {name}"
    return encodable(text)
