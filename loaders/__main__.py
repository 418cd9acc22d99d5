"""``python -m loaders``: the same program as ``loaders``."""

from loaders.cli import run

run()
