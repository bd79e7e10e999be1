"""``python -m ddpflow.launch`` is ``ddprun``."""

import sys

from ddpflow.launch.cli import main

sys.exit(main())
