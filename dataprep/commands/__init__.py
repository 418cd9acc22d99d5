"""One file per command: it parses options, calls the package, and prints the result.

Each command imports heavy modules inside its callback, so `dataprep --help` loads none of them.

::

    all commands       base: begin here; console; parameters: options from dataprep.options
    prepare            convert, plan (with work and finish); conversion: what they share; index
    look and repair    info, diff, verify, repair (with revert), duplicates, report
"""
