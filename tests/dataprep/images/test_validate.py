"""Each damaged or unusual image is kept, or rejected with the right reason, at both levels of validation."""

from __future__ import annotations

import pytest
from helpers.bad_images import Case, cases

from dataprep.images.base import EXTENSIONS, REASONS, Rejected
from dataprep.images.validate import inspect, parse_header

CASES = list(cases())
NAMES = [case.name for case in CASES]


def reason(data: bytes, validation: str) -> str:
    try:
        inspect(data, validation)
    except Rejected as error:
        return error.reason
    return ""


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_reason(case: Case):
    assert (reason(case.data, "header"), reason(case.data, "decode")) == (case.header, case.decode)


def test_cases_have_unique_names_and_cover_all_reasons():
    assert len(set(NAMES)) == len(NAMES) > 60
    assert {case.decode for case in CASES} - {""} == set(REASONS) - {"unreadable", "bad-name", "failed"}


def test_kept_cases_cover_all_formats():
    kept = [case for case in CASES if not case.header]
    assert {parse_header(case.data).format for case in kept} == set(EXTENSIONS)
