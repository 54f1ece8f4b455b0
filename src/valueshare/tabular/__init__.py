"""Value-sharing with a table: finite MDPs, their optimal values, and sweeps of learners."""
