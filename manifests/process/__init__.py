"""How a program starts, prints, is interrupted and ends. Both programs follow these rules.

::

    program             start and end of a program, standard streams, the installed release
    interrupts          Ctrl-C and SIGTERM: handled, awaited, delayed
    unexpected_errors   an exception nobody expected: a fault of the machine, or a bug
    options             options that both programs have: numbers and output files
    pages               the HTML pages of both programs
    text                sizes, counts, escaped names, suggestions
"""
