"""The program ``dataprep``, also as ``python -m dataprep``.

Its commands are in `commands`, which is imported after Ctrl-C is handled.
"""

from __future__ import annotations

from manifests.process.interrupts import handle_interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` takes time
    from typing import NoReturn


def run() -> NoReturn:
    """Run the program and end the process."""
    handle_interrupts("dataprep")
    from manifests.process.program import run_program

    run_program("dataprep", "dataprep.commands.base")


if __name__ == "__main__":
    run()
