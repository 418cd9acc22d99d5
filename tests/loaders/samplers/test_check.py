"""`check_sampler` detects each violation of the contract, and accepts samplers that keep it."""

from dataclasses import dataclass, field, replace
from itertools import count
from threading import current_thread, main_thread

import numpy as np
import pytest
from helpers.rows import evaluate, read_rows

from loaders.samplers import check_sampler
from manifests.errors import CallError

PLANS = count()


@dataclass(frozen=True)
class Broken:
    """A sampler that breaks one rule of the contract."""

    broken_rule: str

    columns = ("label",)

    def __reduce__(self):
        if self.broken_rule == "unpicklable":
            raise TypeError("cannot pickle this")
        return Broken, ("rolled" if self.broken_rule == "copy" else self.broken_rule,)

    def plan(self, columns, *, samples, batch_size, world_size, seed):
        if self.broken_rule == "changes":
            columns["label"][0] += 1
        if self.broken_rule == "refuses" and batch_size > 4:
            raise CallError("the batch size is too large")
        if self.broken_rule == "empty":
            samples = 0
        plan = BrokenPlan(self.broken_rule, samples, batch_size, world_size, next(PLANS))
        return replace(plan, lines="one line") if self.broken_rule == "lines" else plan


#: What a plan that breaks a rule makes of the rows of a batch.
CHANGES = {
    "cut": lambda plan, rows: np.roll(rows, plan.world_size),
    "rolled": lambda plan, rows: np.roll(rows, 1),
    "threads": lambda plan, rows: np.roll(rows, current_thread() is not main_thread()),
    "state": lambda plan, rows: np.roll(rows, len(plan.requested)),
    "unequal": lambda plan, rows: np.roll(rows, plan.plan_number),
    "long": lambda plan, rows: np.arange(plan.batch_size * plan.world_size),
    "beyond": lambda plan, rows: rows + 1,
    "below": lambda plan, rows: rows - 1,
    "int32": lambda plan, rows: rows.astype(np.int32),
    "list": lambda plan, rows: rows.tolist(),
}


@dataclass
class BrokenPlan:
    broken_rule: str
    samples: int
    batch_size: int
    world_size: int
    plan_number: int
    lines: object = ("one line",)
    requested: list = field(default_factory=list)

    def batch(self, epoch, number):
        size = self.batch_size * self.world_size
        rows = np.arange(98)[number * size : (number + 1) * size]
        self.requested.append(number)
        if self.broken_rule == "long" and len(rows) == size:
            return rows
        return CHANGES.get(self.broken_rule, lambda plan, rows: rows)(self, rows)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "every broken rule is found"))
def test_every_broken_rule_is_found(row, message):
    with pytest.raises(AssertionError) as caught:
        check(Broken(evaluate(row)))
    assert message in str(caught.value)


def check(sampler, batch_size=8):
    check_sampler(sampler, {"label": np.arange(98)}, samples=98, batch_size=batch_size)


def test_a_custom_sampler_that_keeps_the_contract_passes():
    check(Broken("none"))
    check(Broken("refuses"), batch_size=4)
    # A function must return a sampler for every batch size.
    with pytest.raises(CallError, match="the batch size is too large"):
        check(lambda size: Broken("refuses"), batch_size=4)
    message = "the sampler needs the column 'label', which is not in the argument columns"
    with pytest.raises(AssertionError, match=message):
        check_sampler(Broken("none"), {}, samples=98, batch_size=8)
