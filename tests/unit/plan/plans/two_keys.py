def program(app):
    sdf = app.dataframe(app.topic("orders")).apply(clean)
    sdf = sdf.update(note, stateful=True)
    sdf = sdf.stateful_map("last", last, initial=0)
    sdf = sdf.group_by("customer").filter(is_new, stateful=True)
    sdf = sdf.apply(clean).group_by(country).apply(clean)
    sdf.update(note, stateful=True)


def clean(value):
    return value


def note(value, state):
    pass


def last(key, value, state):
    return value, state


def is_new(value, state):
    return True


def country(value):
    return value["country"]
