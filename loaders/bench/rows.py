"""What was measured as rows of a table and of a chart, as lines for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from loaders.bench.conditions import describe_conditions
from loaders.bench.rates import Rate
from loaders.bench.results import STAGES, Results
from loaders.bench.verdict import added_times, limiting_stage, sentence, stage_name


@dataclass(frozen=True, slots=True)
class Row:
    """A measured rate.

    Attributes:
        name: what was measured.
        rate: images per second.
        kind: ``"stage"``, ``"model"``, ``"remedy"`` or ``"other"``.
        added: microseconds per image that a stage adds to the one before. `None` for other kinds.
        limit: whether this is the stage that limits the loader.

    """

    name: str
    rate: Rate
    kind: str
    added: float | None = None
    limit: bool = False


def all_rows(results: Results) -> list[Row]:
    """Return everything that was measured, in the order in which people read it."""
    return list(_rows(results))


def _rows(results: Results) -> Iterator[Row]:
    added, limit = added_times(results.stages), limiting_stage(results.stages)
    for number, stage in enumerate(STAGES):
        name = stage_name(stage, results)
        text = f"+ {name}" if number else name
        yield Row(text, results.stages[stage], "stage", 1e6 * added[stage], stage == limit)
    if results.model is not None:
        yield Row(f"{results.model.name} alone, one cached batch", results.model.alone, "model")
        share = results.model.fed.median / results.model.alone.median
        yield Row(
            f"{results.model.name} fed by the loader ({share:.0%} of that)",
            results.model.fed,
            "model",
        )
        yield from (Row(f"... {each.text}", each.rate, "remedy") for each in results.model.remedies)
    yield from (Row(f"loader {each.text}", each.rate, "remedy") for each in results.remedies)
    if results.torchvision is not None:
        yield Row("torchvision, the same images", results.torchvision, "other")


def as_json(results: Results) -> dict[str, Any]:
    """Return all values as JSON has them, with the sentence; each rate as its repeats."""
    return {
        "sentence": sentence(results),
        "limit": limiting_stage(results.stages),
        **asdict(results),
    }


def how_measured(results: Results) -> list[str]:
    """Return lines that say on what and how was measured, and what else affected it."""
    subject, machine, method = results.subject, results.machine, results.method
    options = ", ".join(f"{name}={value}" for name, value in subject.options.items())
    device = machine.device if machine.device == machine.cpu else f"{machine.device}, {machine.cpu}"
    return [
        (
            f"{subject.dataset}, split {subject.split}: {subject.samples:,} samples,"
            f" {subject.transforms}, batches of {subject.batch_size:,}"
        ),
        f"{device}, {machine.cores} cores; {options}",
        (
            f"each rate: warm-up of at least {method.seconds:g} s, then {method.repeats} repeats of"
            f" at least {method.seconds:g} s; median, lowest, highest"
        ),
        describe_conditions(results.conditions, machine.cores),
    ]
