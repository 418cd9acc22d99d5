"""Helpers that several tests share."""

import os
from pathlib import Path

#: Folder of the programs that tests start.
HELPERS = Path(__file__).parent

#: `PYTHONPATH` of processes that import `helpers`. The packages come first: `tests` has folders of the same names.
PYTHONPATH = f"{HELPERS.parents[1]}{os.pathsep}{HELPERS.parent}"
