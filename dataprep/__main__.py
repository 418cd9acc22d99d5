"""``python -m dataprep``: the same program as ``dataprep``."""

from dataprep.cli import run

run()
