def total(value, state):
    new = state.get("total", 0) + value
    state.set("total", new)
    return new
