def program(app):
    sdf = app.dataframe(app.topic("clicks"))
    sdf = sdf[sdf["user"].notnull()]
    sdf["price"] = sdf["price"] * 2
    sdf.print()
    sdf.filter(is_big).to_topic(app.topic("big"))
    totals = sdf.group_by("user").apply(total, stateful=True)
    totals.to_topic(choose)
    totals.sink(save)


def is_big(value):
    return value["price"] > 100


def total(value, state):
    return value


def choose(value, key, timestamp, headers):
    return None


def save(records, delivery_id):
    pass
