"""A sink that keeps what a writer sends."""


class Rows:
    """`rows` and `errors` as they came, a list of arrays each."""

    def __init__(self):
        self.rows, self.errors = [], []

    def append(self, rows, errors):
        self.rows.append(rows)
        self.errors.append(errors)
        return len(rows)

    def flush(self, *_):
        pass

    def has_sent(self, _):
        return True

    def close(self):
        pass
