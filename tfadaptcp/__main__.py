"""`python -m tfadaptcp`."""

import sys

from tfadaptcp.cli import main

sys.exit(main())
