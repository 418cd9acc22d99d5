"""What tests share."""

from pathlib import Path

#: Where the programs are that tests start.
HELPERS = Path(__file__).parent
