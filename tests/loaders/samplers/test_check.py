"""`check_sampler` detects each violation of the contract, and accepts samplers that keep it."""

import threading
from dataclasses import dataclass
from itertools import count

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
        return BrokenPlan(self.broken_rule, samples, batch_size, world_size, next(PLANS), [])


@dataclass
class BrokenPlan:
    broken_rule: str
    rows: int
    batch_size: int
    world_size: int
    plan_number: int
    requested: list

    @property
    def samples(self):
        return 0 if self.broken_rule == "empty" else self.rows

    @property
    def lines(self):
        return "one line" if self.broken_rule == "lines" else ("one line",)

    def batch(self, epoch, number):
        size = self.batch_size * self.world_size
        rows = np.arange(number * size, min(number * size + size, self.rows))
        self.requested.append(number)
        if self.broken_rule == "cut":
            return np.roll(rows, self.world_size)
        if self.broken_rule == "rolled":
            return np.roll(rows, 1)
        if self.broken_rule == "threads":
            return np.roll(rows, threading.current_thread() is not threading.main_thread())
        if self.broken_rule == "state":
            return np.roll(rows, len(self.requested))
        if self.broken_rule == "unequal":
            return np.roll(rows, self.plan_number)
        if self.broken_rule == "long" and len(rows) < size:
            return np.arange(size)
        return {
            "beyond": rows + 1,
            "below": rows - 1,
            "int32": rows.astype(np.int32),
            "list": rows.tolist(),
        }.get(self.broken_rule, rows)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "every broken rule is found"))
def test_every_broken_rule_is_found(row, message):
    broken_rule = evaluate(row)
    with pytest.raises(AssertionError) as caught:
        check(Broken(broken_rule))
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
