"""The commands: each parses options, calls the package, and prints the result.

Each command imports heavy modules inside its callback, so `dataprep --help` loads none of them.

::

    all commands       base: begin here; console
    prepare            convert (with plan, work and finish), index, join, remove, sync
    look and repair    info (with report and diff), duplicates, repair (with verify and revert)
"""
