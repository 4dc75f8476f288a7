"""The sections of `python -m benchmarks.speed`: each measures one part, compared with its limits."""
