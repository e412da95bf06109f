"""``python -m outlast.cli``: as ``outlast``."""

import sys

from outlast.cli import main

if __name__ == "__main__":
    sys.exit(main())
