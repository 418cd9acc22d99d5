"""Export the transforms of an evaluation for servers.

`loaders.export.command` has the entry point.
"""
