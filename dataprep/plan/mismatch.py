"""The error for an output folder with another dataset: which options differ, as far as its manifest states them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from dataprep.options import Options, library_versions, stored_flags
from dataprep.storage.partials import JOURNAL_NAME
from manifests.errors import CallError, DamagedError
from manifests.files import MANIFEST, read_file
from manifests.process.text import printable
from manifests.store import MANIFEST_NAME


def foreign_file_error(out: str, name: str, options: Options) -> CallError:
    """Return the error for a file in `out` that the run may not replace.

    Args:
        out: the output folder.
        name: the file.
        options: options of the run.

    """
    recorded = _recorded_options(os.path.join(out, MANIFEST_NAME))
    recorded = recorded or _recorded_options(os.path.join(out, JOURNAL_NAME))
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


def other_plan_error(out: str, planned: Mapping[str, Any], options: Options) -> CallError:
    """Return the error for an output folder with the plan of another conversion."""
    return CallError(
        f"--out {printable(out)} has the plan of another"
        f" conversion{_differences(planned, options)}",
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
    different = []
    for name, flag in stored_flags():
        if before.get(name) != now.get(name):
            values = [_value(name, members.get(name)) for members in (before, now)]
            different.append(f"{flag} ({values[0]} in the folder, {values[1]} now)")
    if not different:
        return "; the options are the same, so the source or the file is not"
    return f"; different: {', '.join(different[:5])}{', ...' if len(different) > 5 else ''}"


def _value(name: str, value: object) -> str:
    if isinstance(value, bool):
        # The option --no-shuffle negates its member.
        return "set" if value != (getattr(Options, name, None) is True) else "not set"
    return "not set" if value is None else printable(str(value)[:40])


def _flatten(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of options with the names that `stored_flags` gives them."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{member}": each for member, each in value.items()}
        else:
            flat[name] = value
    if "hash" in flat:  # the recipe
        flat["hash"] = True
    return flat


def _other_versions(recorded: Mapping[str, Any]) -> str:
    """Describe the installed library versions and the versions that made the dataset.

    Empty if they are the same.
    """
    installed = library_versions()
    if not recorded:
        return f" and {_join_versions(installed)}"
    used = recorded.get("made_by", installed)
    if used == installed:
        return ""
    return f" and {_join_versions(installed)} (but with {_join_versions(used)})"


def _join_versions(versions: object) -> str:
    if not isinstance(versions, dict) or not versions:
        return "unknown versions"
    return " and ".join(printable(f"{name} {version}") for name, version in versions.items())
