"""Options of the `ssh` program, as in `ansible_ssh_common_args`; no such program is run."""

import re
import shlex
from typing import Final

HONOURED: Final = {
    "proxyjump": "jump_hosts",
    "identityfile": "ansible_ssh_private_key_file",
    "port": "ansible_port",
    "user": "ansible_user",
    "userknownhostsfile": "mltswitch_known_hosts_file",
    "connecttimeout": "ansible_ssh_timeout",
}
"""Option → the variable that says the same."""
AS_ALWAYS: Final = {
    "stricthostkeychecking": r"yes",
    "identitiesonly": r"yes",
    "batchmode": r"yes",
    "forwardagent": r"no",
    "control(master|path|persist)|serveralive(interval|countmax)|tcpkeepalive|loglevel": r".*",
}
"""Options and the values that change nothing: one connection for each device is kept open and alive."""
_LETTERS: Final = {"J": "ProxyJump", "i": "IdentityFile", "p": "Port", "l": "User"}
_HOP: Final = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?P<address>[^@:\s\[\]]+|\[[^\]]+\])(?::(?P<port>\d{1,5}))?"
)

Hop = tuple[str, str, str]
"""Address, port and user; an empty user is the one who runs mltswitch."""


def ssh_options(text: str) -> dict[str, str | list[Hop]]:
    """What the options say, by the names of `HONOURED`; raises ValueError for one that is not honoured."""
    words = shlex.split(text)
    said: dict[str, str | list[Hop]] = {}
    while words:
        word = words.pop(0)
        letter, name = word[1:2], _LETTERS.get(word[1:2], "")
        value = word[2:] or (words.pop(0) if words and (name or letter == "o") else "")
        given = word if word.endswith(value) else f"{word} {value}"
        if letter == "o":
            name, _, value = re.sub(r"\s*[=\s]\s*", "=", value.strip(), count=1).partition("=")
        option = name.lower()
        if any(re.fullmatch(names, option) and re.fullmatch(fit, value) for names, fit in AS_ALWAYS.items()):
            continue
        if word[0] != "-" or option not in HONOURED or not value or re.search(r"[%\s]|^/dev/null$", value):
            raise ValueError(f"has {given!r}, which mltswitch does not honour")
        meant = _jump_hosts(value) if option == "proxyjump" else value
        if said.setdefault(HONOURED[option], meant) != meant:
            raise ValueError(f"says {name} twice")
    return said


def _jump_hosts(text: str) -> list[Hop]:
    matches = [_HOP.fullmatch(part) for part in text.split(",")] if text.lower() != "none" else []
    if None in matches:
        raise ValueError(f"has the ProxyJump {text!r}, which is not [user@]host[:port], separated by commas")
    hops = [match.groupdict("") for match in matches if match is not None]
    return [(hop["address"].strip("[]"), hop["port"] or "22", hop["user"]) for hop in hops]
