"""A key with thousands of names: the same answers as with few, through every way to its state."""

from __future__ import annotations

import json

import pytest

from millpond import admin

pytestmark = pytest.mark.spark

NAMES = 20_000


def visit(value, state):
    if value == "fill":
        for i in range(NAMES):
            state.set(f"page-{i}", i)
        return len(state.keys())
    before = state.get(value)
    state.set(value, -1)
    return before


def test_a_key_with_many_names_is_read_changed_and_followed_by_name(make_app):
    app = make_app("visits", max_records_per_batch=1)
    app.dataframe(app.topic("visits")).apply(visit, stateful=True)
    with app.get_producer() as producer:
        for value in ("fill", "page-7", "page-19999", "page-7"):
            producer.produce("visits", key=b"reader", value=json.dumps(value).encode())

    assert app.run(drain=True) == [NAMES, 7, 19999, -1]

    with admin.open(app) as state:
        found = state.get("reader")
        assert len(found) == NAMES
        assert list(found)[:3] == ["page-0", "page-1", "page-2"]
        assert (found["page-7"], found["page-8"], found["page-19999"]) == (-1, 8, -1)
        assert state.get("reader", at=1)["page-19999"] == 19999
        later = [change for change in state.history("reader") if change.batch > 0]
        assert [(c.batch, c.name, c.before, c.after) for c in later] == [
            (1, "page-7", 7, -1),
            (2, "page-19999", 19999, -1),
        ]
        state.set("reader", {"page-3": "mine"})
        state.delete("reader", "page-4")
        found = state.get("reader")
        assert (len(found), found["page-3"]) == (NAMES - 1, "mine")
        assert state.verify().problems == []
