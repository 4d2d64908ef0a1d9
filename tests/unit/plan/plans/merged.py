def program(app):
    web = app.dataframe(app.topic("web"))
    shop = app.dataframe(source=["a", "b"])
    both = web.apply(clean).concat(shop)
    both.apply(count, stateful=True).set_timestamp(now).set_headers(none).to_topic(app.topic("out"))


def clean(value):
    return value


def count(value, state):
    return 1


def now(value, key, timestamp, headers):
    return timestamp


def none(value, key, timestamp, headers):
    return None
