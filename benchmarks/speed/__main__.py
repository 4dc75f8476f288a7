"""`python -m benchmarks.speed`, see `benchmarks.speed.run`."""

import sys

from benchmarks.speed.run import main

if __name__ == "__main__":
    sys.exit(main())
