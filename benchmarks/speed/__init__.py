"""Speed, memory and scaling: `python -m benchmarks.speed` measures each part; the other modules are commands."""
