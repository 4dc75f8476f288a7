"""`python -m acme_ext`, the command line."""

import sys

from acme_ext.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
