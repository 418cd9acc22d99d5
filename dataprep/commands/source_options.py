"""The options that say how to read a source: ``--path-column``, ``--label-type`` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import classes_option, max_classes_option, read_classes
from dataprep.commands.info import labels_line
from dataprep.commands.param_types import path_or_url
from dataprep.commands.sections import section
from manifests.errors import CallError
from manifests.labels import LABEL_TYPES, LabelType
from manifests.text import plural

if TYPE_CHECKING:
    from dataprep.sources import Source, SourceOptions

_READING = section(
    "Reading the source",
    click.option(
        "--image-root",
        type=path_or_url,
        metavar="DIR",
        help="Folder or URL that the paths in a list or table are relative to.",
    ),
    click.option("--path-column", metavar="NAME", help="Table column that contains the paths."),
    click.option("--split-column", metavar="NAME", help="Table column that contains the split names."),
    click.option(
        "--pattern",
        metavar="PATTERN",
        help="How image files in a folder are named, for example '{identity}_c{camera}s*'. A {part} becomes a column, "
        "* matches any text, ? one character. The label is {identity} or {label}, or else the class folder.",
    ),
)

_LABELS = section(
    "Labels",
    click.option(
        "--label-column",
        metavar="NAME",
        help="Table column, or {part} of --pattern, that contains the labels. Several columns, separated by commas, "
        "are numbers of a regression, or 0 or 1 for each class.",
    ),
    click.option(
        "--label-type",
        type=click.Choice(LABEL_TYPES),
        help="What the labels are. By default, it is detected and printed before anything is written: lists, and text "
        "with vertical bars, are multi-label; numbers with fractions are a regression; text in a column called caption "
        "is a caption; other labels are classes.",
    ),
    click.option(
        "--unlabelled",
        is_flag=True,
        help="Leave out the labels: the same as --label-type none. A folder may then contain images without class "
        "folders.",
    ),
    click.option(
        "--label-separator",
        metavar="TEXT",
        help="Text between the classes of an image that has several, or between its numbers.  "
        "[default: a vertical bar for classes]",
    ),
    classes_option,
    max_classes_option,
    click.option(
        "--rename-classes",
        type=path_or_url,
        metavar="FILE",
        help="File of class names to rename, lines of `old,new`. Classes with the same new name become one. --classes "
        "then lists the new names.",
    ),
)


def add_source_options(callback: Any) -> Any:
    """Add the options of this file to a command's callback, which passes their values to `source_options`."""
    return _READING(_LABELS(callback))


def source_options(
    *,
    classes: str | None,
    label_type: LabelType | None,
    label_separator: str | None,
    unlabelled: bool,
    **others: Any,
) -> SourceOptions:
    """Return the record for the values of these options.

    Raises:
        CallError: they contradict each other, or the file with the classes cannot be read.

    """
    from dataprep.sources import SourceOptions

    return SourceOptions(
        classes=read_classes(classes),
        label_type=_label_type(label_type, label_separator, unlabelled=unlabelled),
        label_separator=label_separator,
        **others,
    )


def _label_type(label_type: LabelType | None, label_separator: str | None, *, unlabelled: bool) -> LabelType | None:
    """Return the label type that the options name; `None` detects it.

    Raises:
        CallError: the options contradict each other.

    """
    if unlabelled and label_type not in (None, "none"):
        raise CallError(f"--unlabelled and --label-type {label_type} contradict each other", hint="leave one out")
    if label_separator == "":
        raise CallError("--label-separator is empty", hint="give the text between two classes, for example ';'")
    if label_separator is not None and (unlabelled or label_type not in (None, "multi-label", "regression")):
        raise CallError(
            "--label-separator needs labels of several classes or numbers",
            hint="set --label-type multi-label or regression, or leave it out",
        )
    return "none" if unlabelled else label_type


def describe_contents(source: Source) -> str:
    """Return how many images a source has, and what their labels are."""
    origin = f" from {source.label_origin}" if source.label_origin and source.label_type != "class" else ""
    return f"{plural(len(source), 'image')}{labels_line(source.label_type, len(source.classes))}{origin}"
