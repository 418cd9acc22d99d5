"""The ``dataprep`` program. Each command is a file in `commands`."""

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
    """Convert image datasets into TFRecord or WebDataset shards with DALI indexes.

    \b
    dataprep convert --src ILSVRC2012/ --fmt tfrecord   write images into shards
    dataprep index   downloaded-shards/                 index shards that other tools wrote
    dataprep verify  ILSVRC2012-tfrecord/               check a dataset for damage
    dataprep info    ILSVRC2012-tfrecord/               print what a dataset contains

    \b
    Exit status:
      0    success
      1    finished, but the data has a problem
      2    wrong usage; nothing was written
      3    stopped by a problem such as a full disk; run the same command again to resume
      130  interrupted
    """  # noqa: D301  (click reads the backslash)


main.add_command(convert)
main.add_command(index)
main.add_command(verify)
main.add_command(info)


def run() -> None:
    """Run the program and end the process."""
    try:
        main(prog_name="dataprep")  # the same name for `python -m dataprep`
    except SystemExit as error:
        with suppress(OSError, ValueError):  # the other end of a pipe may be closed
            sys.stdout.flush()
            sys.stderr.flush()
        # Skip Python's own shutdown. It reports an interrupt during an import as death by SIGINT, and it stops the
        # threads of libraries, which aborts the process in about one run in a thousand.
        os._exit(error.code if isinstance(error.code, int) else bool(error.code))


if __name__ == "__main__":
    run()
