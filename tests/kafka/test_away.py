"""What a person sees of a run while its broker is away."""

from __future__ import annotations

import logging
import threading

import pytest
from kit import connect, new_name, wait_for

import millpond as mp
from millpond.connectors.kafka.broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_broker_that_is_away_is_reported_with_its_address_and_since_when(spark, tmp_path, caplog):
    from broker import Broker

    caplog.set_level(logging.INFO, "millpond")
    with Broker(tmp_path / "kafka") as broker:
        app = mp.Application(
            broker.address,
            consumer_group=new_name("group"),
            state_dir=tmp_path / "state",
            auto_offset_reset="earliest",
            loglevel=None,
            spark=spark,
        )
        clicks, totals = app.topic(new_name("clicks")), app.topic(new_name("totals"))
        app.dataframe(clicks).to_topic(totals)
        with app.get_producer() as producer:
            producer.produce(clicks, {"n": 1}, "a")
        run = threading.Thread(target=app.run, kwargs={"collect": False})
        run.start()
        try:
            wait_for(lambda: app.reports and app.reports[-1].outputs, 60)
            wait_for(lambda: not app.waiting)

            broker.kill()
            what = f"waiting for Kafka at {broker.address}"
            away = wait_for(lambda: [one for one in app.waiting if one.what == what], 60)
            wait_for(lambda: [text for text in caplog.messages if f"{what} for " in text], 60)
            line = wait_for(
                lambda: [t for t in caplog.messages if "running" in t and what in t], 60
            )
            broker.start()
            wait_for(lambda: not app.waiting, 60)
        finally:
            app.stop()
            run.join(60)

    assert away[0].seconds > 0
    assert not run.is_alive()
    assert "lag " in line[0]


def test_writer_names_the_broker_that_it_waits_for(broker):
    place = KafkaBroker(
        connect(broker), {}, creates=True, guarantee="exactly-once", skips_lost=False
    )
    writer = place.writer(new_name("group"), "stream", True, lambda batch: {})
    try:
        assert writer.waits_for == f"Kafka at {broker.address}"
    finally:
        writer.close()
