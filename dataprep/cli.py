"""The program ``dataprep``.

Its commands are in `commands`, which is imported after Ctrl-C is handled.
"""

from __future__ import annotations

from manifests.process.interrupts import handle_interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` takes time
    from typing import Any, NoReturn


def run() -> NoReturn:
    """Run the program and end the process."""
    handle_interrupts("dataprep")
    from manifests.process.program import run_program

    run_program("dataprep", "dataprep.commands.base")


def __getattr__(name: str) -> Any:
    # The click group, for tests and for the documentation.
    if name == "main":
        from dataprep.commands.base import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    run()
