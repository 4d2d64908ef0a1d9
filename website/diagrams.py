"""Draws the diagrams of the documentation: `python website/diagrams.py`.

Gives docs/images/diagrams/*.svg. On the site they are part of the page and take its colours; in the
repository they are pictures with the colours below, light or dark as the reader's system is.
"""

from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "diagrams"

LIGHT = {
    "ink": "#1f2933", "soft": "#52606d", "faint": "#d9e2ec", "card": "#f5f7f9",
    "blue": "#0b6a84", "orange": "#c2571a", "red": "#b3261e", "green": "#2f7d4f",
}  # fmt: skip
DARK = {
    "ink": "#e4e7eb", "soft": "#9aa5b1", "faint": "#3e4c59", "card": "#242b33",
    "blue": "#62c3dc", "orange": "#f2a26b", "red": "#f28b82", "green": "#81c995",
}  # fmt: skip


def _rules(colours: dict[str, str]) -> str:
    rules = [
        f".mp .{n}{{fill:var(--{n},{c})}}.mp .s-{n}{{stroke:var(--{n},{c})}}"
        for n, c in colours.items()
    ]
    return "".join(rules)


STYLE = (
    ".mp{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "font-size:14px}.mp .b{font-weight:600}.mp .small{font-size:12.5px}"
    ".mp .code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".mp .m{text-anchor:middle}.mp .e{text-anchor:end}"
    ".mp .line{fill:none;stroke-width:1.5}.mp .thick{stroke-width:2.5}"
    + _rules(LIGHT)
    + "@media (prefers-color-scheme:dark){"
    + _rules(DARK)
    + "}"
)


class Drawing:
    """Shapes, one after the other."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, look: str = "ink") -> None:
        """Write lines of text, the first at y."""
        for number, line in enumerate(text.split("\n")):
            safe = line.replace("&", "&amp;").replace("<", "&lt;")
            self.parts.append(
                f'<text x="{x:g}" y="{y + number * 18:g}" class="{look}">{safe}</text>'
            )

    def box(self, x: float, y: float, w: float, h: float, look: str, more: str = "") -> None:
        """Draw a box with round corners."""
        at = f'x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}"'
        self.parts.append(f'<rect {at} rx="6" class="{look}"{more}/>')

    def line(self, *points: tuple[float, float], look: str) -> None:
        """Draw a line through points."""
        places = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" class="line {look}"/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float, colour: str = "soft") -> None:
        """Draw an arrow, to the right or down."""
        self.line((x, y), (to_x, to_y), look=f"s-{colour}")
        if to_y == y:
            tip = f"{to_x - 7:g},{to_y - 4.5:g} {to_x + 1:g},{to_y:g} {to_x - 7:g},{to_y + 4.5:g}"
        else:
            tip = f"{to_x - 4.5:g},{to_y - 7:g} {to_x:g},{to_y + 1:g} {to_x + 4.5:g},{to_y - 7:g}"
        self.parts.append(f'<polygon points="{tip}" class="{colour}"/>')

    def dot(self, x: float, y: float, look: str) -> None:
        """Draw a record."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="6.5" class="{look}"/>')

    def svg(self) -> str:
        """Return the picture."""
        size = f'viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg class="mp" xmlns="http://www.w3.org/2000/svg" {size}>'
        return f"{head}<style>{STYLE}</style>\n" + "\n".join(self.parts) + "\n</svg>\n"


def batch() -> Drawing:
    """How a batch travels, and what a crash leaves at each place."""
    stops = [
        ("1  Plan", "offset ranges and\nthe time of the\nbatch are recorded", "driver"),
        ("2  Stage 0", "workers read their\nranges and run steps\nwithout state", "workers"),
        ("3  Move", "each record goes to\nthe key group of\nits key", "workers"),
        ("4  Stage 1", "functions run with\nthe state of the key,\nin order of offsets", "workers"),
        ("5  Deliver", "outputs go to topics\nwith the number of\nthe batch; then sinks", "driver"),
        ("6  Commit", "state, offsets and\noutputs of the batch\nare valid", "driver"),
    ]
    width, gap, top = 158, 18, 66
    step = width + gap
    drawing = Drawing(6 * step - gap + 4, 330)
    for number, (name, says, where) in enumerate(stops):
        x = 2 + number * step
        drawing.text(x + 12, top - 12, where, "soft small")
        drawing.box(x, top, width, 104, "card s-faint", ' stroke-width="1.5"')
        drawing.text(x + 12, top + 26, name, "blue b")
        drawing.text(x + 12, top + 50, says, "ink small")
        if number:
            drawing.arrow(x - gap + 1, top + 52, x - 2, top + 52)
    drawing.text(2, 24, "One batch, from left to right", "ink b")
    drawing.text(2, 214, "If the process dies here", "red b")
    outcomes = [
        (0, 1, "the next run plans\nthe batch again"),
        (
            1,
            3,
            "the next run replays the batch: the same records,\n"
            "the same time, from the state of the batch before",
        ),
        (4, 1, "replayed; topics refuse\nwhat they have, sinks\nget the same id"),
        (5, 1, "the next run goes on\nwith the next batch"),
    ]
    for first, count, says in outcomes:
        x, w = 2 + first * step, count * step - gap
        drawing.line((x, 230), (x + w, 230), look="s-red thick")
        drawing.text(x, 254, says, "ink small")
    drawing.text(
        2,
        318,
        "Every record counts once in state and once in topics, wherever the process dies.",
        "soft",
    )
    return drawing


Notes = dict[int, tuple[str, str]]
"""For the number of a record, what it does, and its colour."""


def timeline(lateness: int, notes: Notes, title: str) -> Drawing:
    """Records as they arrive, and the watermark after each."""
    arrivals = [("ann", 5), ("bob", 70), ("ann", 50), ("bob", 120)]
    left, scale, top, row, first, last = 150, 2.9, 88, 56, -30, 150
    bottom, width = top + len(arrivals) * row, 1000

    def place(seconds: int) -> float:
        return left + (seconds - first) * scale

    drawing = Drawing(width, bottom + 62)
    drawing.text(2, 24, title, "ink b")
    drawing.text(2, top - 28, "arrival", "soft small")
    for name, start, end in (("10:00", 0, 60), ("10:01", 60, 120), ("10:02", 120, last)):
        x, w = place(start) + 1, (end - start) * scale - 2
        drawing.box(x, top - 18, w, bottom - top + 18, "blue", ' opacity=".1"')
        drawing.text(x + 4, top - 28, f"window {name}", "blue b small")
    for seconds in range(first, last, 30):
        drawing.line((place(seconds), bottom), (place(seconds), bottom + 6), look="s-soft")
        minute, second = divmod(10 * 3600 + seconds, 60)
        label = f"{minute // 60:02}:{minute % 60:02}:{second:02}"
        drawing.text(place(seconds), bottom + 24, label, "soft m small")
    drawing.line((place(first), bottom), (place(last), bottom), look="s-soft")
    drawing.text(place(last), bottom + 50, "time of the record", "soft e small")
    latest, path = 0, []
    for number, (key, seconds) in enumerate(arrivals):
        y = top + number * row + 14
        latest = max(latest, seconds)
        note, colour = notes[number]
        label = f"{number + 1}   {key}  10:0{seconds // 60}:{seconds % 60:02}"
        drawing.text(2, y + 5, label, "ink small")
        drawing.line((place(first), y), (place(last), y), look="s-faint")
        drawing.text(place(last) + 22, y - 3, note, f"{colour} small")
        path += [(place(latest - lateness), y), (place(latest - lateness), y + row)]
    path[-1] = (path[-1][0], bottom)
    drawing.line(*path, look="s-orange thick")
    for number, (_, seconds) in enumerate(arrivals):
        is_late = notes[number][1] == "red"
        drawing.dot(place(seconds), top + number * row + 14, "red" if is_late else "blue")
    drawing.line((2, bottom + 45), (30, bottom + 45), look="s-orange thick")
    less = f"minus the lateness of {lateness} s" if lateness else "because the lateness is 0"
    says = f"watermark: the largest time so far, {less}"
    drawing.text(38, bottom + 50, says, "orange b small")
    return drawing


def closes() -> Drawing:
    """When a window closes."""
    notes = {
        0: ("opens window 10:00\nwatermark 09:59:35", "soft"),
        1: ("opens window 10:01\nwatermark 10:00:40, window 10:00 waits", "soft"),
        2: ("20 seconds late, and on time:\nthe watermark has not passed 10:01:00", "green"),
        3: ("watermark 10:01:30:\nwindow 10:00 closes with 2 clicks", "green"),
    }
    return timeline(30, notes, "With a lateness of 30 s, the window waits for the third click")


def late() -> Drawing:
    """What is late."""
    notes = {
        0: ("opens window 10:00\nwatermark 10:00:05", "soft"),
        1: ("watermark 10:01:10:\nwindow 10:00 closes with 1 click", "green"),
        2: ("late by 20 s: window 10:00 has closed,\nso the record goes to late()", "red"),
        3: ("watermark 10:02:00:\nwindow 10:01 closes with 1 click", "green"),
    }
    return timeline(0, notes, "Without lateness, the same click is late")


def keys() -> Drawing:
    """How keys are spread."""
    drawing = Drawing(900, 300)
    heads = [(2, "records"), (250, "key groups"), (520, "state partitions"), (760, "tasks")]
    for x, head in heads:
        drawing.text(x, 24, head, "ink b")
    says = [
        (2, "key"),
        (250, "hash of the key; fixed forever"),
        (520, "rescale changes the number"),
        (760, "one core each"),
    ]
    for x, what in says:
        drawing.text(x, 44, what, "soft small")
    groups = {"ann": 1, "bob": 4, "eve": 1, "joe": 6, "kim": 3}
    at = lambda group: 66 + group * 28  # noqa: E731
    for number, (key, group) in enumerate(groups.items()):
        y = 72 + number * 42
        drawing.box(2, y, 110, 28, "card s-faint", ' stroke-width="1.5"')
        drawing.text(14, y + 19, key, "ink code")
        drawing.line(
            (112, y + 14),
            (150, y + 14),
            (212, at(group) + 11),
            (248, at(group) + 11),
            look="s-soft",
        )
    for group in range(8):
        colour = "blue" if group % 2 else "orange"
        drawing.box(250, at(group), 120, 22, colour, ' opacity=".16"')
        drawing.text(262, at(group) + 16, f"group {group}", f"{colour} small b")
        target = 196 if group % 2 else 100
        y = at(group) + 11
        drawing.line((370, y), (390, y), (498, target + 22), (518, target + 22), look=f"s-{colour}")
    for number, (colour, y) in enumerate((("orange", 100), ("blue", 196))):
        drawing.box(520, y, 150, 44, "card s-" + colour, ' stroke-width="1.5"')
        drawing.text(534, y + 19, f"partition {number}", f"{colour} b small")
        drawing.text(534, y + 36, "RocksDB, in pages", "soft small")
        drawing.arrow(672, y + 22, 756, y + 22)
        drawing.box(760, y, 110, 44, "card s-faint", ' stroke-width="1.5"')
        drawing.text(774, y + 27, f"task {number}", "ink small")
    return drawing


def drawings() -> Iterator[tuple[Path, str]]:
    """Yield each file and what is in it."""
    for draw in (batch, closes, late, keys):
        yield FOLDER / f"{draw.__name__}.svg", draw().svg()


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, content in drawings():
        path.write_text(content)
