"""``dataprep verify``: check a dataset for damage."""

from __future__ import annotations

from collections import Counter

import click

from dataprep.commands.base import Command, print_line
from dataprep.commands.console import ProgressBar
from dataprep.commands.parameters import path_or_url, takes
from dataprep.options import VerifyOptions
from manifests.errors import CallError, ExitStatus
from manifests.process.text import agree, plural


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@takes(options=VerifyOptions)
def verify(dataset: str, *, options: VerifyOptions) -> ExitStatus:
    """Check a dataset for damage.

    Reads all files of DATASET, a folder or a URL; with --manifest-only, only the manifest. Prints
    the file, record and byte offset of each problem, and how to fix it. Lists the first problems of
    each file, and counts the others.
    """
    from dataprep.verify.verify import verify_dataset, verify_manifest

    decode, workers = options.decode, options.workers
    if options.max_pixels is not None and not decode:
        raise CallError(
            "--max-pixels requires --decode", hint="add --decode, or leave --max-pixels out"
        )
    if options.manifest_only and decode:
        raise CallError(
            "--manifest-only reads no image, so it excludes --decode", hint="leave one of them out"
        )
    with ProgressBar("verifying") as bar:
        if options.manifest_only:
            result = verify_manifest(dataset, workers=workers, progress=bar)
        else:
            result = verify_dataset(
                dataset,
                decode=decode,
                max_pixels=options.max_pixels,
                workers=workers,
                progress=bar,
            )
    # Each file has a limit of listed problems; the result counts the others.
    for problem in result.problems:
        print_line(str(problem))
    listed = Counter(problem.file for problem in result.problems)
    for file, count in listed.items():
        if result.counts[file] > count:
            print_line(f"{file}: {plural(result.counts[file] - count, 'problem')} more")
    if result.without_checksum:
        has = agree(result.without_checksum, "has", "have")
        # --decode checks images without a checksum, except for damage that still decodes.
        effect = " to compare with" if decode else ", so their images were not checked"
        print_line(
            f"{plural(result.without_checksum, 'shard')} {has} no checksum{effect}. Hint: `dataprep"
            " index --validate header --overwrite` reads them and adds checksums."
        )
    if result.problems:
        total = sum(result.counts.values())
        rest = f"; the first {listed.total():,} are listed" if total > listed.total() else ""
        print_line(f"{plural(total, 'problem')} in {dataset}{rest}")
        return ExitStatus.DATA_PROBLEM
    samples = f"{plural(result.samples, 'sample')} in {plural(result.shards, 'shard')}"
    if options.manifest_only:
        samples += ", whose contents were not read"
    print_line(f"no problems in {dataset}: {samples}")
    return ExitStatus.SUCCESS
