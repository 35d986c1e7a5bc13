"""What does ``python -m deepinfer_core`` run? The command line."""

import sys

from deepinfer_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
