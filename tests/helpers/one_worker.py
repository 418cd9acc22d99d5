"""Importing this module makes `dataprep` use one process by default.

The datasets of tests are so small that starting a worker takes longer than the work. Tests of
workers set their number.
"""

import dataprep.engines
from dataprep.engines import base, local

for module in (dataprep.engines, base, local):
    module.default_workers = lambda: 1
