"""`python -m cuaug`, which is the `cuaug` command."""

import sys

from cuaug.cli import main

sys.exit(main())
