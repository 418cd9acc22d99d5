"""Helpers that several tests share."""

from pathlib import Path

#: Folder of the programs that tests start.
HELPERS = Path(__file__).parent
