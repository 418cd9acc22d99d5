"""The first step of a conversion in three steps: make the plan and write it."""

from __future__ import annotations

from dataclasses import dataclass

from dataprep.convert.dataset import prepared
from dataprep.options import Options
from dataprep.plan.files import write_plan
from dataprep.plan.stored import StoredPlan
from dataprep.sources import Source


@dataclass(frozen=True)
class PlanResult:
    """The plan in an output folder.

    Attributes:
        plan: the plan.
        resumed: number of shards of this plan that are finished.
        notices: messages about the new splits, one line each.

    """

    plan: StoredPlan
    resumed: int
    notices: tuple[str, ...]


def plan_dataset(
    source: Source, out: str, options: Options, *, overwrite: bool = False
) -> PlanResult:
    """Write a plan into ``out/plan``; see `convert_dataset` for the arguments.

    Raises:
        CallError: the options do not fit the source, or `out` cannot be used, or contains another
            dataset or plan.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    with prepared(source, out, options, overwrite=overwrite, always_writes=True) as run:
        stored = write_plan(source, run.plan, out, options)
        return PlanResult(stored, len(run.finished), run.plan.notices)
