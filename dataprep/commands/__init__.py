"""One file a command of the command line, each of which parses and prints; nothing else."""
