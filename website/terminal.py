"""Draws docs/images/terminal.svg, the terminal of README.md while the demo runs.

`python website/terminal.py` runs `examples/demo.py` in a terminal, which needs Java, and gives a
picture of what the screen had while a batch in the middle was processed.
"""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS = 100

# The batch of which the live line is shown.
BATCH = 5


def printed_by(command: list[str]) -> str:
    """Return what a program prints to a terminal."""
    terminal, inside = pty.openpty()
    settings = {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"}
    program = subprocess.Popen(
        command, stdout=inside, stderr=inside, cwd=ROOT, env={**os.environ, **settings}
    )
    os.close(inside)
    found = b""
    try:
        while part := os.read(terminal, 4096):
            found += part
    except OSError:  # the program has ended, and with it the terminal
        pass
    os.close(terminal)
    if program.wait():
        raise SystemExit(found.decode())
    return found.decode()


def screen(printed: str) -> str:
    """Return the screen at the last live line of a batch: what is above it, and the line."""
    states = printed.split("\r\x1b[2K")  # the live line is erased and written again
    above = states[0].replace("\r\n", "\n").rpartition("\n")[0]
    of_batch = [state for state in states if re.search(rf"batch (\x1b\[0m)?{BATCH}\D", state)]
    live = next(state for state in reversed(of_batch) if "running" in state)
    return f"{above}\n{live}"


def draw(shown: str) -> str:
    """Return the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print("[bold]$[/] make demo", highlight=False)
    for line in re.sub(r"\x1b\[\?\d+[lh]", "", shown).splitlines():
        console.print(Text.from_ansi(line), soft_wrap=True)
    picture = console.export_svg(title="make demo", unique_id="terminal")
    # The fonts of the reader, and none from another server.
    picture = re.sub(r"\s*@font-face \{.*?\}|\s*<!--.*?-->", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", "monospace")


if __name__ == "__main__":
    PICTURE.write_text(draw(screen(printed_by([sys.executable, "examples/demo.py"]))))
