from datetime import timedelta

MINUTE = timedelta(minutes=1)


def program(app):
    web = app.dataframe(app.topic("web", idle_after=MINUTE))
    shop = app.dataframe(app.topic("shop"))
    old = app.dataframe(source=["a", "b"]).watermark(idle_after=MINUTE)
    every = web.concat(shop).concat(old)
    every.tumbling_window(MINUTE).count().final().to_topic(app.topic("counts"))
    web.apply(remind, stateful=True, on_timer=remember)


def remind(value, state):
    state.set_timer("reminder", after=MINUTE)


def remember(key, state, timer):
    return key
