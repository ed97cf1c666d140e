"""Opens a page in headless Chromium and brings back what it drew."""

import json
import re
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Final

from tests.chromium import FLAGS

LIMIT_SECONDS: Final = 120

LOOK: Final = """
<script>
"use strict";
const look = { pictures: {}, requests: [], violations: [] };
document.addEventListener("securitypolicyviolation", function (event) {
  look.violations.push(event.blockedURI);
});
window.addEventListener("load", function () {
  window.setTimeout(function () {
    for (const picture of document.querySelectorAll(".picture")) {
      const shown = "path.js-line, .bars .point path, .scatterlayer .point, .scatterlayer text";
      const marks = Array.from(picture.querySelectorAll(shown));
      look.pictures[picture.id] = {
        traces: Array.from(picture.querySelectorAll(".scatterlayer .trace, .barlayer .trace")).map(
          function (trace) {
            return Array.from(trace.querySelectorAll("path, text")).filter(function (mark) {
              return mark.tagName === "text" ? mark.textContent : mark.getAttribute("d");
            }).length;
          }),
        marks: marks.length,
        ink: getComputedStyle(picture.querySelector(".xtitle")).fill,
        room: picture.getBoundingClientRect().width,
        width: picture.querySelector(".main-svg").getBoundingClientRect().width,
        height: picture.querySelector(".main-svg").getBoundingClientRect().height,
      };
    }
    look.requests = performance.getEntriesByType("resource").map(function (entry) { return entry.name; });
    look.scroll = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    look.paper = getComputedStyle(document.documentElement).backgroundColor;
    document.documentElement.dataset.look = JSON.stringify(look);
  }, 500);
});
</script>
"""
"""Put into the page: what stands in it once it is loaded."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one visit showed."""

    pictures: dict[str, dict[str, Any]]
    requests: list[str]
    violations: list[str]
    console: list[str]
    paper: str
    overflow_pixels: int


def visit(program: str, page: str, folder: Path, *, is_dark: bool = False, width: int = 1200) -> Look:
    """Open the page from a file, with no name resolved and nothing kept."""
    file = folder / "page.html"
    head, _, tail = page.partition("<body>")
    file.write_text(f"{head}<body>{LOOK}{tail}", encoding="utf-8")
    command = [
        program,
        *FLAGS,
        "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=10000",
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},1600",
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    found = re.search(r'<html[^>]* data-look="([^"]*)"', done.stdout)
    assert found is not None, f"the page's scripts did not run to their end: {_console(done.stderr)}"
    look = json.loads(unescape(found[1]))
    return Look(
        look["pictures"],
        look["requests"],
        look["violations"],
        _console(done.stderr),
        look["paper"],
        look["scroll"],
    )


def _console(log: str) -> list[str]:
    """What the page writes; the browser's own pages, such as that of a new tab, write there, too."""
    return [line for line in log.splitlines() if "CONSOLE" in line and "source: chrome://" not in line]
