"""The command line: the program itself. What a command does stands in its own file in `commands`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from dataprep.commands.convert import convert
from dataprep.commands.index import index
from dataprep.commands.info import info
from dataprep.commands.verify import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dataprep-loaders", prog_name="dataprep")
def main() -> None:
    """Turn image folders, lists and tables into TFRecord or WebDataset shards with their DALI indexes.

    \b
    dataprep convert --src ILSVRC2012/ --fmt tfrecord    shards, from images
    dataprep index   some-one-elses-shards/              an index, for shards made elsewhere
    dataprep verify  ILSVRC2012-tfrecord/                what is wrong, and where
    dataprep info    ILSVRC2012-tfrecord/                what is in it

    Exit status: 0 done; 1 done, and something is wrong with the data; 2 the call was wrong;
    3 the machine stopped the work (full disk, lost source), run it again to go on; 130 interrupted.
    """  # noqa: D301  (click reads the backslash)


main.add_command(convert)
main.add_command(index)
main.add_command(verify)
main.add_command(info)


def run() -> None:
    """Be the program `dataprep`."""
    try:
        main(prog_name="dataprep")  # also when run as `python -m dataprep`
    except SystemExit as ending:
        with suppress(OSError, ValueError):  # nobody may be reading any more
            sys.stdout.flush()
            sys.stderr.flush()
        # All is done. Python's own way out would turn an interrupt that met an import into a death by the signal, and
        # run the ends of libraries' threads, of which one in some thousand aborts.
        os._exit(ending.code if isinstance(ending.code, int) else bool(ending.code))


if __name__ == "__main__":
    run()
