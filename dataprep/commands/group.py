"""``dataprep`` itself: its commands, and what ``dataprep --help`` prints."""

from __future__ import annotations

import click

from dataprep.commands.convert import convert
from dataprep.commands.diff import diff
from dataprep.commands.duplicates import duplicates
from dataprep.commands.index import index
from dataprep.commands.info import info
from dataprep.commands.plan import finish, plan, work
from dataprep.commands.repair import repair, revert
from dataprep.commands.report import report
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
    dataprep report  ILSVRC2012-tfrecord/               write a page that shows a dataset
    dataprep repair  ILSVRC2012-tfrecord/               replace damaged and missing files
    dataprep revert  ILSVRC2012-tfrecord/               undo the last `convert --append`
    dataprep diff    ILSVRC2012-old/ ILSVRC2012-new/    compare two datasets
    dataprep duplicates ILSVRC2012-tfrecord/            find images that occur more than once

    \b
    The same as convert, in three steps for several machines:
    dataprep plan    --src ILSVRC2012/ --out OUT        decide what each shard contains
    dataprep work    OUT --task 0/8                     write a share of the shards
    dataprep finish  OUT                                write the manifest

    \b
    Exit status:
      0    success
      1    finished, but the data has a problem
      2    wrong usage; nothing was written
      3    stopped by a problem such as a full disk; run the same command again to resume
      130  interrupted
    """  # noqa: D301  (click reads the backslash)


for _command in (
    *(convert, index, verify, info, report, repair, revert, diff, duplicates),
    *(plan, work, finish),
):
    main.add_command(_command)
