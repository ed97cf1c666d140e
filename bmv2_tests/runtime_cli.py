"""BMv2's own command line, kept open: registers, queue rates and depths, which P4Runtime does not reach."""

import os
import re
import subprocess
from collections.abc import Sequence
from typing import Final

PROMPT: Final = b"RuntimeCmd: "
_BATCH: Final = 200
"""Commands written before answers are read; more could fill both pipes."""
_COUNTER: Final = re.compile(r"\((\d+) bytes, (\d+) packets\)")
_REGISTER: Final = re.compile(r"\]\s*=\s*(\d+)\s*$")
_COMPLAINT: Final = re.compile(r"^(Error|Invalid|\*\*\* Unknown).*", re.MULTILINE)


class RuntimeCli:
    """One `simple_switch_CLI` process."""

    def __init__(self, command: Sequence[str]):
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONUNBUFFERED": "1"},
        )
        self._text = b""
        self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate(b"EOF\n", timeout=60)

    def run(self, *commands: str) -> list[str]:
        """The answers, one for each command; fails where one is a complaint."""
        answers = []
        for first in range(0, len(commands), _BATCH):
            batch = commands[first : first + _BATCH]
            stdin = self._process.stdin
            assert stdin is not None
            stdin.write("".join(f"{command}\n" for command in batch).encode())
            stdin.flush()
            for command in batch:
                answer = self._answer()
                assert not _COMPLAINT.search(answer), f"{command}: {answer}"
                answers.append(answer)
        return answers

    def counters(self, *cells: tuple[str, int]) -> list[tuple[int, int]]:
        """(packets, bytes) of each (counter, index)."""
        answers = self.run(*(f"counter_read {name} {index}" for name, index in cells))
        found = [_COUNTER.search(answer) for answer in answers]
        assert all(found), answers
        return [(int(match[2]), int(match[1])) for match in found if match]

    def registers(self, *cells: tuple[str, int]) -> list[int]:
        """The value of each (register, index)."""
        answers = self.run(*(f"register_read {name} {index}" for name, index in cells))
        found = [_REGISTER.search(answer.strip()) for answer in answers]
        assert all(found), answers
        return [int(match[1]) for match in found if match]

    def _answer(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        while PROMPT not in self._text:
            more = os.read(stdout.fileno(), 1 << 16)
            assert more, f"simple_switch_CLI ended: {self._text.decode()}"
            self._text += more
        answer, _, self._text = self._text.partition(PROMPT)
        return answer.decode()
