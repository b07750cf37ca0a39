"""The operator's own program, with seconds where a rotation of its authority has hours.

`python hasty_operator.py OPTION...`, with --authority-overlap in seconds.
"""

from __future__ import annotations

import sys

from modelcache_operator import config, serving_certificate
from modelcache_operator.__main__ import main

if __name__ == "__main__":
    config._SHORTEST_OVERLAP_SECONDS = 1.0
    serving_certificate._CHECK_SECONDS = 0.5
    sys.exit(main())
