"""The name of one delivery: the records that one batch brings to one sink.

Takes the stream of deliveries, what the batch reads and the sink; gives a text that a sink stores
with the records. The same records at the same sink have the same id whenever they come again;
other records never do: not after a restore, a rewind, a fork or a clear, and not at another sink.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from millpond.errors import MillpondError

__all__ = ["DeliveryId", "delivery_id", "digest_of"]

# Bytes of the digest: among 2**48 deliveries, two are alike with a probability of 2**-33.
_DIGEST_BYTES = 16


class DeliveryId(str):
    """The id of a delivery: a text to compare for equality and to store as a unique key.

    It has letters, digits, `.`, `_` and `-` only, so it can also be a file name.

    >>> DeliveryId("save-7-1f") == "save-7-1f"
    True
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def _refuse(self, other: object) -> bool:
        msg = (
            "delivery ids have no order: a later delivery may have a smaller id.\n"
            "Fix: store the id under a unique key, and skip a delivery whose id is stored."
        )
        raise MillpondError(msg)

    __lt__ = __le__ = __gt__ = __ge__ = _refuse


def delivery_id(stream: str, number: int, reads: Any, sink: str) -> DeliveryId:
    """Return the id of a delivery.

    Args:
        stream: The lineage of deliveries: a new one begins where outputs are to be written again.
        number: The number of the batch in that stream.
        reads: What the batch reads and at what time, as JSON. It tells two batches of the same
            number apart where a state directory was replaced by an older copy.
        sink: The name of the sink.
    """
    return DeliveryId(f"{sink}-{number}-{digest_of([stream, number, reads, sink])}")


def digest_of(content: Any) -> str:
    """Return a short text that tells JSON from any other."""
    data = json.dumps(content, sort_keys=True).encode()
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
