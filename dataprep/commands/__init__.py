"""One file a command of the command line, each of which parses and prints; nothing else.

Heavy modules are imported where a command does its work, so that `--help` waits for none.
"""
