"""The sections of `python -m benchmarks.speed`: each measures one part of the ring beside its limits."""
