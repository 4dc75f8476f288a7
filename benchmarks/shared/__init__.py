"""What all benchmarks use: command lines, measurements in turns, and pages of results."""
