"""The options that say how to read a source: ``--path-column``, ``--label-type`` and others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from dataprep.commands.base import classes_option, max_classes_option, print_note, read_classes
from dataprep.commands.console import console
from dataprep.commands.info import labels_line
from dataprep.commands.param_types import path_or_url
from dataprep.commands.sections import option, pass_record, section
from manifests.errors import CallError
from manifests.labels import LABEL_TYPES, LabelType
from manifests.process.text import plural
from manifests.schema import DEFAULT_MAX_CLASSES

if TYPE_CHECKING:
    from dataprep.run.source import OpenSource
    from dataprep.sources import Source, SourceOptions

_FILES = section(
    "Reading the source",
    option(
        "--image-root",
        type=path_or_url,
        metavar="DIR",
        help="Folder or URL that the paths in a list or table are relative to.",
    ),
    option("--path-column", metavar="NAME", help="Table column that contains the paths."),
    option("--split-column", metavar="NAME", help="Table column that contains the split names."),
    option(
        "--pattern",
        metavar="PATTERN",
        help=(
            "How image files in a folder are named, for example '{identity}_c{camera}s*'. A {part}"
            " becomes a column, * matches any text, ? one character. The label is {identity} or"
            " {label}, or else the class folder."
        ),
    ),
)

_LABELS = section(
    "Labels",
    option(
        "--label-column",
        metavar="NAME",
        help=(
            "Table column, or {part} of --pattern, that contains the labels. Several columns,"
            " separated by commas, are numbers of a regression, or 0 or 1 for each class."
        ),
    ),
    option(
        "--label-type",
        type=click.Choice(LABEL_TYPES),
        help=(
            "What the labels are. By default, it is detected and printed before anything is"
            " written: lists, and text with vertical bars, are multi-label; numbers with fractions"
            " are a regression; text in a column called caption is a caption; other labels are"
            " classes."
        ),
    ),
    option(
        "--unlabelled",
        is_flag=True,
        help=(
            "Leave out the labels: the same as --label-type none. A folder may then contain images"
            " without class folders."
        ),
    ),
    option(
        "--label-separator",
        metavar="TEXT",
        help=(
            "Text between the classes of an image that has several, or between its numbers.  "
            "[default: a vertical bar for classes]"
        ),
    ),
    classes_option,
    max_classes_option,
    option(
        "--rename-classes",
        type=path_or_url,
        metavar="FILE",
        help=(
            "File of class names to rename, lines of `old,new`. Classes with the same new name"
            " become one. --classes then lists the new names."
        ),
    ),
)


@dataclass(frozen=True)
class SourceArguments:
    """The values of these options; `None` means that an option was not given."""

    image_root: str | None = None
    path_column: str | None = None
    split_column: str | None = None
    pattern: str | None = None
    label_column: str | None = None
    label_type: LabelType | None = None
    unlabelled: bool = False
    label_separator: str | None = None
    classes: str | None = None
    max_classes: int = DEFAULT_MAX_CLASSES
    rename_classes: str | None = None

    @property
    def given(self) -> bool:
        """Whether any option but ``--max-classes`` was given."""
        return replace(self, max_classes=DEFAULT_MAX_CLASSES) != SourceArguments()

    def resolve(self) -> SourceOptions:
        """Combine the options, except ``--rename-classes``.

        Raises:
            CallError: they contradict each other, or the file with the classes cannot be read.

        """
        from dataprep.sources import SourceOptions

        return SourceOptions(
            image_root=self.image_root,
            path_column=self.path_column,
            label_column=self.label_column,
            split_column=self.split_column,
            classes=read_classes(self.classes),
            pattern=self.pattern,
            max_classes=self.max_classes,
            label_type=self._label_type(),
            label_separator=self.label_separator,
        )

    def _label_type(self) -> LabelType | None:
        """Return the label type that the options name; `None` detects it.

        Raises:
            CallError: the options contradict each other.

        """
        label_type, separator = self.label_type, self.label_separator
        if self.unlabelled and label_type not in (None, "none"):
            raise CallError(
                f"--unlabelled and --label-type {label_type} contradict each other",
                hint="leave one out",
            )
        if separator == "":
            raise CallError(
                "--label-separator is empty",
                hint="give the text between two classes, for example ';'",
            )
        if separator is not None and (
            self.unlabelled or label_type not in (None, "multi-label", "regression")
        ):
            raise CallError(
                "--label-separator needs labels of several classes or numbers",
                hint="set --label-type multi-label or regression, or leave it out",
            )
        return "none" if self.unlabelled else label_type


add_source_options = pass_record("reading", SourceArguments, _FILES, _LABELS)


def print_source(opened: OpenSource) -> None:
    """Print to stderr what was found."""
    if len(opened.given) == 1:
        _print_contents(opened.given[0].src, opened.samples)
    else:
        for src, source in opened.given:
            _print_contents(src, source)
    for notice in opened.samples.notices:
        print_note(notice)


def _print_contents(src: str, source: Source) -> None:
    console.info(f"{src}: {source.layout}, {_describe_contents(source)}")


def _describe_contents(source: Source) -> str:
    """Return how many images a source has, and what their labels are."""
    origin = (
        f" from {source.label_origin}"
        if source.label_origin and source.label_type != "class"
        else ""
    )
    return f"{plural(len(source), 'image')}{labels_line(source.label_type, len(source.classes))}{origin}"
