"""``python -m outlast.cli`` is the ``outlast`` command."""

import sys

from outlast.cli import main

if __name__ == "__main__":
    sys.exit(main())
