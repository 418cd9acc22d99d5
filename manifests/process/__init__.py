"""How a program starts, prints, is interrupted and ends. Both programs follow these rules.

::

    program     start and end of a program, standard streams, the installed release
    interrupts  Ctrl-C and SIGTERM: handled, awaited, delayed
    options     options that both programs have: numbers and output files
    pages       HTML pages
    text        sizes, counts, escaped names, suggestions
"""
