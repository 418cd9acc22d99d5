"""``dataprep duplicates``: find images that occur more than once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import Command, path_or_url, print_line, takes
from dataprep.commands.console import ProgressBar, console
from dataprep.options import DuplicatesOptions, SourceOptions
from manifests.errors import CallError, ExitStatus
from manifests.process.text import MAX_SHOWN, agree, one_line, plural, printable
from manifests.remote.url import absolute

if TYPE_CHECKING:
    from dataprep.duplicates.find import Duplicates
    from dataprep.duplicates.results import Match, Place, Summary
    from dataprep.sources import Source


@click.command(cls=Command)
@click.argument("datasets", nargs=-1, required=True, type=path_or_url, metavar="DATASET [OTHER]...")
@takes(options=DuplicatesOptions)
def duplicates(datasets: tuple[str, ...], *, options: DuplicatesOptions) -> ExitStatus:
    """Find images that occur more than once.

    Finds images with the same bytes, and near copies: images of another size, quality or
    brightness, also rotated and mirrored ones. Looks within and across the splits of one or several
    datasets, or of anything that `dataprep convert` reads. Uses the hashes that `convert --hash` or
    an earlier run stored, or else reads the images. Exit status 1: an image is in more than one
    split.
    """
    from dataprep.duplicates.collection import collect, store_hashes
    from dataprep.duplicates.find import find_duplicates
    from dataprep.duplicates.results import find_places, summarize
    from dataprep.sources.prepared import is_prepared

    for number, path in enumerate(datasets):
        if absolute(path) in map(absolute, datasets[:number]):
            raise CallError(
                f"{printable(path)} is given twice",
                hint="give each dataset once: copies in it are found",
            )
    plain = SourceOptions(label_type=options.label_type)
    sources = []
    for path in datasets:
        # A prepared dataset knows what its labels are.
        reading = plain
        if is_prepared(path):
            reading = SourceOptions()
        sources.append(_read(path, reading))
    with ProgressBar("hashing") as bar:
        images = collect(
            sources, max_pixels=options.max_pixels, workers=options.workers, progress=bar
        )
    if not options.no_store:
        for folder, reason in store_hashes(images).items():
            console.note(
                f"{folder}: the hashes are not stored ({reason}), so the next run computes them"
                " again"
            )
    with ProgressBar("comparing") as bar:
        found = find_duplicates(
            images, options.distance, across=options.across, workers=options.workers, progress=bar
        )
    summary = summarize(images, found, options.limit)
    places = find_places(
        images, datasets, {number for match in summary.matches for number in match.images}
    )
    if images.problems:
        number, reason = min(images.problems.items())
        source, row = images.place(number)
        path = one_line(sources[source].path[row].as_py(), MAX_SHOWN)
        count = plural(len(images.problems), "image")
        console.note(f"{count} cannot be compared, except byte by byte: {path} ({reason})")
    console.notes(found.notes)
    if options.json:
        # ASCII: any path is safe.
        click.echo(json.dumps(_as_json(summary, places, datasets, found), indent=1))
    else:
        _print(summary, places, datasets, options.limit)
    if summary.leaks:
        return ExitStatus.DATA_PROBLEM
    return ExitStatus.SUCCESS


def _read(path: str, options: SourceOptions) -> Source:
    from dataprep.sources import read_source

    try:
        return read_source(path, options)
    except CallError as error:  # this command has no option of this name
        raise CallError(error.message.removeprefix("--src "), hint=error.hint) from None


def _as_json(
    summary: Summary, places: dict[int, Place], datasets: tuple[str, ...], found: Duplicates
) -> dict[str, Any]:
    leaks = []
    for (later, earlier), count in summary.leaks.items():
        leaks.append(
            {
                "images": count,
                "of": {"dataset": datasets[later.source], "split": later.split},
                "in": {"dataset": datasets[earlier.source], "split": earlier.split},
            }
        )
    return {
        "datasets": list(datasets),
        "distance": found.distance,
        "notes": list(found.notes),
        "images": summary.images,
        "hashed": summary.hashed,
        "exact": summary.exact,
        "near": summary.near,
        "groups": summary.groups,
        "conflicts": summary.conflicts,
        "leaks": leaks,
        "pairs": [_match_json(match, places) for match in summary.matches],
    }


def _match_json(match: Match, places: dict[int, Place]) -> dict[str, Any]:
    return {
        "same_bytes": match.distance is None,
        "distance": match.distance or 0,
        "symmetry": match.symmetry,
        "conflicting_labels": match.has_conflict,
        "leak": match.is_leak,
        "images": [places[number]._asdict() for number in match.images],
    }


def _print(
    summary: Summary, places: dict[int, Place], datasets: tuple[str, ...], limit: int
) -> None:
    is_one = len(datasets) == 1
    for match in summary.matches:
        _print_match(match, places, is_one=is_one)
    hidden = summary.pairs - len(summary.matches)
    if hidden:
        what = f"{plural(hidden, 'pair')} {agree(hidden, 'is', 'are')} not listed"
        if limit:
            what = f"and {hidden:,} more"
        print_line(f"{what}; --limit {summary.pairs} lists all")
    if summary.pairs and limit:
        print_line()
    copies, pairs = plural(summary.exact, "copy"), plural(summary.near, "pair")
    print_line(f"{plural(summary.images, 'image')}, {summary.hashed:,} with a hash")
    print_line(f"{copies} with the same bytes, {pairs} of near copies")
    if summary.conflicts:
        has = agree(summary.conflicts, "has", "have")
        print_line(f"{plural(summary.conflicts, 'pair')} {has} conflicting labels")
    for (later, earlier), count in summary.leaks.items():
        of, into = (
            part.split if is_one else f"{datasets[part.source]} {part.split}"
            for part in (later, earlier)
        )
        print_line(f"{plural(count, 'image')} of {of} {agree(count, 'is', 'are')} also in {into}")
    if not summary.leaks:
        print_line("no image is in more than one split")


def _print_match(match: Match, places: dict[int, Place], *, is_one: bool) -> None:
    # In what the images differ.
    words = ["same bytes"]
    if match.distance is not None:
        words = [plural(match.distance, "bit")]
    if match.symmetry != "identical":
        words.append(match.symmetry)
    if match.has_conflict:
        words.append("conflicting labels")
    if match.is_leak:
        words.append("different splits")
    print_line(f"{', '.join(words)}:")
    # Where they are.
    for number in match.images:
        place = places[number]
        where, text = place.split, one_line(place.path, MAX_SHOWN)
        if not is_one:
            where = f"{place.dataset} {where}"
        if place.key is not None:
            text += f" (key {place.key})"
        if place.label:
            text += f", label {one_line(place.label, MAX_SHOWN)}"
        print_line(f"  {where}: {text}")
