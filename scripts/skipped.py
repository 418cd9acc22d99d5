"""Print in one line which tests were skipped and why, from pytest's JUnit report: see `scripts/test`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def summarize(report: str) -> str:
    """Return ``skipped 3: 2 x needs an NVIDIA GPU; 1 x could not import 'tensorflow'``, or an empty string."""
    if not report:  # pytest stopped before it ran a test
        return ""
    reasons = Counter(
        skip.get("message", "no reason given")
        for skip in ElementTree.fromstring(report).iter("skipped")
        if skip.get("type") == "pytest.skip"  # else an expected failure
    )
    counts = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return f"skipped {reasons.total()}: {counts}" if counts else ""


if __name__ == "__main__":
    if line := summarize(Path(sys.argv[1]).read_text("utf-8")):
        print(" ".join(line.split()))
