"""`python -m benchmarks.learning`, see `benchmarks.learning.run`."""

import sys

from benchmarks.learning.run import main

if __name__ == "__main__":
    sys.exit(main())
