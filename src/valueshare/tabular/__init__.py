"""Value-sharing with a table: finite MDPs, their optimal values, and sweeps of learners."""

MOST_ROWS = 50_000_000  # of one sweep's results: some ten gigabytes
