"""`python -m cuaug`: the `cuaug` command."""

import sys

from cuaug.commands.cli import main

sys.exit(main())
