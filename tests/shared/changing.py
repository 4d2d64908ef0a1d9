"""A program that is written again though it has state, and the ways out that a message names."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
from typer.testing import CliRunner

import millpond as mp
from millpond import admin
from millpond.cli.main import command
from millpond.errors import StateError
from millpond.state.codec import Codec

__all__ = ["COUNT", "Programs", "outputs", "ways_out"]

PROGRAM = """
import millpond as mp

app = mp.Application(
    consumer_group="g", state_dir={folder!r} + "/state", topics_dir={folder!r} + "/topics",
    auto_offset_reset="earliest", loglevel=None, **{options!r},
)
topic = app.topic("clicks", key_deserializer={keys}, max_future=None)


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return value


def fold(key, value, state):
    return value, (state or 0) + 1


clicks = app.dataframe(topic)
{body}
"""

COUNT = "clicks.apply(count, stateful=True)\n"


class Programs:
    """A folder with the state and topics of one group, and a program that is written again."""

    def __init__(self, folder):
        self.folder = folder
        self.sent = 0
        self.key = "ann"

    def write(self, body, *, typed_keys=False, **options):
        keys = "app.codec.decode" if typed_keys else "'str'"
        self.key = Codec().encode("ann") if typed_keys else "ann"
        text = PROGRAM.format(folder=str(self.folder), body=body, keys=keys, options=options)
        (self.folder / "APP.py").write_text(text)

    def send(self, count):
        app = mp.Application(topics_dir=self.folder / "topics", loglevel=None)
        with app.get_producer() as producer:
            for number in range(self.sent, self.sent + count):
                producer.produce(
                    "clicks",
                    key=self.key,
                    value=json.dumps({"n": number, "user": "u"}),
                    timestamp=1_000_000 + 1_000 * number,
                )
        self.sent += count

    def does(self, words):
        """The result of a command as a message prints it."""
        path = str(self.folder / "APP.py")
        given = [path if word == "APP.py" else word for word in shlex.split(words)]
        asks = given[0] == "state" and given[1] in ("drop", "rename", "rewind", "restore")
        return CliRunner().invoke(command, given + ["--yes"] * asks)

    def run(self):
        done = self.does("run APP.py --drain")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output

    def refusal(self):
        with pytest.raises(StateError) as found:
            self.run()
        return str(found.value)

    def verdicts(self, words="check APP.py"):
        done = self.does(f"{words} --json")
        rows = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        return {row["store"]: row["says"] for row in rows}

    def kept(self):
        """The values that the key has in each store."""
        found = {}
        for item in self.opened().scan():
            found.setdefault(f"{item.scope}/{item.store}", {})[item.name] = item.value
        return found

    def values(self, store):
        return self.kept().get(store, {})

    def opened(self):
        return admin.open(self.folder / "state", "g")

    def partitions(self):
        """How many folders each layer of state is divided into, in all generations."""
        home = self.folder / "state" / "g" / "generations"
        layers = [place for place in home.glob("*/state/*") if place.name.isdigit()]
        return {len([part for part in layer.iterdir() if part.name.isdigit()]) for layer in layers}

    def copy(self, folder):
        shutil.copytree(self.folder, folder)
        other = Programs(folder)
        other.sent, other.key = self.sent, self.key
        return other


def outputs(programs, topic="out"):
    app = mp.Application(topics_dir=programs.folder / "topics", loglevel=None)
    with app.get_consumer() as consumer:
        return [json.loads(record.value) for record in consumer.read(topic)]


def ways_out(message):
    """The commands that a message names, each way a list of them; None: the option."""
    fix = message.partition("\nFix: ")[2]
    ways = []
    for text in re.split(r"; or |, or ", fix):
        found = re.findall(r"millpond ((?:state|check) .*?)(?=, then |[,;.]?$|: )", text)
        if found:
            ways.append(found)
        if "Application(on_state_change=" in text:
            ways.append(None)
    return ways
