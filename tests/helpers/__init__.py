"""Helpers that several tests share."""

import os
from pathlib import Path

# Idle threads of torch sleep, in tests and in the programs that they start. By default they first
# spin for a while, which takes CPU time from tests that run at the same time. OpenMP reads this
# variable when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

#: Folder of the programs that tests start.
HELPERS = Path(__file__).parent

#: `PYTHONPATH` of processes that import `helpers`. The packages come first: `tests` has folders of
#: the same names.
PYTHONPATH = f"{HELPERS.parents[1]}{os.pathsep}{HELPERS.parent}"
