"""One file per command: it parses options, calls the package, and prints the result.

Each command imports heavy modules inside its callback, so `dataprep --help` loads none of them.
"""
