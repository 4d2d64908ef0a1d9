"""A broker for the session. What a test does to it must be undone: give topics names of their own.

Tests that stop or kill a broker, or change its rights, make one of their own.
"""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    from broker import Broker

    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    from registry import Apicurio

    with Apicurio(tmp_path_factory.mktemp("registry")) as server:
        yield server
