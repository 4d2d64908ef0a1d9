"""Clients of librdkafka that are still open when the program ends.

Takes who holds one; closes it while Python is still whole. librdkafka's threads would otherwise
go on while the interpreter and the C library are taken down.
"""

from __future__ import annotations

import atexit
import logging
import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["close_at_exit"]

logger = logging.getLogger("millpond")


class Holder(Protocol):
    """Has clients of librdkafka."""

    def let_go(self) -> None:
        """Close them, without waiting for the broker; more than once does no harm."""


_holders: WeakSet[Holder] = WeakSet()

# A process that was forked has no threads of librdkafka, so there is nothing to close.
os.register_at_fork(after_in_child=_holders.clear)


def close_at_exit(holder: Holder) -> None:
    """Remember who holds clients, for the end of the program."""
    _holders.add(holder)


@atexit.register
def _close() -> None:
    for holder in list(_holders):
        try:
            holder.let_go()
        except Exception as error:  # the others are closed nonetheless
            logger.debug("a Kafka client could not be closed: %s", error)
