ONE = 1


def with_total(value, total):
    return {**value, "total": total}
