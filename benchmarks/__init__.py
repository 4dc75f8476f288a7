"""Benchmarks of the toolkit: `speed`, `learning` and `faults`; the README lists the commands."""
