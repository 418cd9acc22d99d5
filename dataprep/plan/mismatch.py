"""The error for an output folder with another dataset: which options differ, as far as its manifest states them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from dataprep.options import Options, library_versions
from manifests.errors import CallError, DamagedError
from manifests.files import MANIFEST, read_file
from manifests.process.text import printable

#: The command line option of each member of `Options.as_json`.
_OPTION_OF = {
    "fmt": "--fmt",
    "shard_bytes": "--shard-size",
    "shard_samples": "--samples-per-shard",
    "shuffle": "--no-shuffle",
    "seed": "--seed",
    "val_fraction": "--val-fraction",
    "test_fraction": "--test-fraction",
    "split_by": "--split-by",
    "where": "--where",
    "validate": "--validate",
    "hash": "--hash",
    "duplicates": "--duplicates",
    "distance": "--distance",
    "max_pixels": "--max-pixels",
    "downscale.shorter": "--resize-shorter",
    "downscale.longest": "--max-side",
    "downscale.only_above": "--only-above",
    "downscale.quality": "--quality",
    "downscale.subsampling": "--subsampling",
    "downscale.filter": "--filter",
    "raw.size": "--raw-size",
    "raw.fit": "--raw-fit",
    "raw.filter": "--filter",
}


def foreign_file_error(out: str, name: str, options: Options, files: tuple[str, ...]) -> CallError:
    """Return the error for a file in `out` that the run may not replace.

    Args:
        out: the output folder.
        name: the file.
        options: options of the run.
        files: names of the files that may contain the options of the earlier run, the first one
            first.

    """
    recorded = next(
        filter(None, (_recorded_options(os.path.join(out, file)) for file in files)), {}
    )
    versions = _other_versions(recorded) if options.changes_images else ""
    and_versions = " and library versions" if versions else ""
    return CallError(
        f"--out {printable(out)} contains {name!r}, which was not made from this source with these"
        f" options{versions}, or is damaged{_differences(recorded, options)}",
        hint=(
            f"move it away, choose another folder, use the options{and_versions} of the earlier"
            " run, or replace everything with --overwrite"
        ),
    )


def other_plan_error(out: str, planned: Options, options: Options) -> CallError:
    """Return the error for an output folder with the plan of another conversion."""
    return CallError(
        f"--out {printable(out)} has the plan of another"
        f" conversion{_differences(planned.as_json(), options)}",
        hint=(
            "choose another folder, use the source and options of that plan, or replace everything"
            " with --overwrite"
        ),
    )


def _recorded_options(path: str) -> dict[str, Any]:
    """Return the member ``options`` of a manifest, complete or not.

    Empty if it was not made by a conversion.
    """
    try:
        options = json.loads(read_file(path, MANIFEST))["options"]
        return dict(options) if "plan" in options else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError, DamagedError):
        return {}


def _differences(recorded: Mapping[str, Any], options: Options) -> str:
    """Describe which options differ from the earlier run."""
    if not recorded:
        return ""
    before, now = _flatten(recorded), _flatten(options.as_json())
    different = [name for name in _OPTION_OF if before.get(name) != now.get(name)]
    if not different:
        return "; the options are the same, so the source or the file is not"
    shown = ", ".join(_describe(name, before.get(name), now.get(name)) for name in different[:5])
    return f"; different: {shown}{', ...' if len(different) > 5 else ''}"


def _describe(name: str, before: object, now: object) -> str:
    if name == "shuffle":
        before, now = not before, not now
    return f"{_OPTION_OF[name]} ({_value(before)} in the folder, {_value(now)} now)"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "set" if value else "not set"
    return "not set" if value is None else printable(str(value)[:40])


def _flatten(options: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(options)
    if "hash" in flat:  # the recipe
        flat["hash"] = True
    for name in ("downscale", "raw"):
        members = flat.pop(name, None)
        if isinstance(members, dict):
            flat |= {f"{name}.{member}": value for member, value in members.items()}
    return flat


def _other_versions(recorded: Mapping[str, Any]) -> str:
    """Describe the installed library versions and those that made the dataset.

    Empty if they are the same.
    """
    installed = library_versions()
    if not recorded:
        return f" and {_join_versions(installed)}"
    used = recorded.get("made_by", installed)
    return (
        ""
        if used == installed
        else f" and {_join_versions(installed)} (but with {_join_versions(used)})"
    )


def _join_versions(versions: object) -> str:
    items = versions.items() if isinstance(versions, dict) else ()
    return (
        " and ".join(printable(f"{name} {version}") for name, version in items)
        or "unknown versions"
    )
