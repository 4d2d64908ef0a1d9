"""The description of a topic of the embedded log, `topic.json`: how many partitions it has.

If it is lost, the folders of its partitions show that the topic was there.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from millpond.connectors.segments import sync, sync_folder
from millpond.documents import sealed, unsealed
from millpond.errors import DamagedTopicError, TopicError, shown

__all__ = ["confirm", "durable_write", "folders", "is_input", "read_topic", "used", "write_topic"]

# What topic.json has of a topic that was created only because it is read.
_INPUT = "created_as_input"

# Versions of topic.json; from 2 on, segments have their end in their names.
_FORMAT, _READABLE = 2, (1, 2)


def is_input(file: Path) -> bool:
    """Tell whether a topic was created only because it is read."""
    return _INPUT in read_topic(file)


def confirm(file: Path) -> None:
    """Write down that a topic was created for another reason, too."""
    content = read_topic(file)
    if content.pop(_INPUT, None):
        durable_write(file, sealed(content))


def write_topic(file: Path, partitions: int, *, is_input: bool) -> None:
    """Write the description of a topic."""
    content = {"format": _FORMAT, "partitions": partitions}
    durable_write(file, sealed({**content, **({_INPUT: True} if is_input else {})}))


def read_topic(file: Path) -> dict[str, Any]:
    """Return the description of a topic.

    Raises:
        FileNotFoundError: there is no topic.
        DamagedTopicError: there is one, and its description is gone or damaged.
    """
    written = used(file.parent)
    try:
        content = unsealed(file.read_bytes())
        version, partitions = content["format"], int(content["partitions"])
        if partitions < written:
            msg = f"it says {partitions} partition(s), and there are records in {written}"
            raise ValueError(msg)
    except FileNotFoundError:
        if not written:
            raise
        raise _undescribed(file, "is gone") from None
    except (ValueError, KeyError, TypeError) as error:
        raise _undescribed(file, f"is damaged: {error}") from error
    if version not in _READABLE:
        msg = f"{file} has format {shown(version)}, which this version of Millpond does not know."
        raise TopicError(msg + "\nFix: run the version of Millpond that made the topic.")
    return content


def _undescribed(file: Path, what: str) -> DamagedTopicError:
    count = folders(file.parent)
    topic, folder = file.parent.name, str(file.parent.parent)
    words = shlex.join([topic, "--partitions", str(max(1, count)), "--topics-dir", folder])
    return DamagedTopicError(
        f"{file}, which has the number of partitions of the topic, {what}.\n"
        f"Fix: restore it from a copy, or millpond topics create {words}, as there are folders of "
        f"{count} partition(s)."
    )


def folders(topic: Path) -> int:
    """Return of how many partitions a topic has folders."""
    return 1 + max((int(place.name) for place in _partitions(topic)), default=-1)


def used(topic: Path) -> int:
    """Return how many partitions a topic has up to the last one to which something was written."""
    return 1 + max((int(p.name) for p in _partitions(topic) if _is_used(p)), default=-1)


def _partitions(topic: Path) -> list[Path]:
    return [place for place in topic.glob("*") if place.name.isdigit() and place.is_dir()]


def _is_used(partition: Path) -> bool:
    return any(next(partition.glob(kind), None) for kind in ("*.arrow", "*.end"))


def durable_write(path: Path, data: bytes) -> None:
    """Write a file so that after a crash the file is whole: the old one or the new one."""
    aside = path.with_suffix(path.suffix + ".writing")
    with aside.open("wb") as file:
        file.write(data)
        sync(file)
    aside.rename(path)
    sync_folder(path.parent)
