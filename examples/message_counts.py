"""The stateful example of Quix Streams' documentation: only the import and the broker changed.

What is new stands below the program: a few messages for it to read, and the run itself.

Prints:

    {'text': 'hello', 'total': 1}
    {'text': 'hi', 'total': 1}
    {'text': 'are you there?', 'total': 2}
"""

import tempfile

from millpond import Application, State

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

app = Application(
    consumer_group="consumer",
    auto_offset_reset="earliest",
    state_dir=f"{folder.name}/state",
    topics_dir=f"{folder.name}/topics",
    loglevel="WARNING",
)
topic = app.topic("topic")

sdf = app.dataframe(topic)


def count_messages(value: dict, state: State):
    total = state.get("total", default=0)
    total += 1
    state.set("total", total)
    return {**value, "total": total}


# Apply a custom function and inform StreamingDataFrame to provide a State instance to it
# via passing "stateful=True"
sdf = sdf.apply(count_messages, stateful=True)


with app.get_producer() as producer:
    producer.produce(topic, key="KEY_A", value={"text": "hello"})
    producer.produce(topic, key="KEY_B", value={"text": "hi"})
    producer.produce(topic, key="KEY_A", value={"text": "are you there?"})

for value in app.run(drain=True):
    print(value)
