"""Results of run folders and of other libraries, read into one tidy table."""
