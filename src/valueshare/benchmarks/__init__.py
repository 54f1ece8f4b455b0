"""Benchmarks: ratios within one run, with the machine and the versions beside the numbers."""
