"""Print in one line which tests were skipped and why, from pytest's JUnit report: see `scripts/test`.

The exit status is 1 if all tests against S3 servers were skipped: each of the two servers is a
package on PyPI.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

#: What the skips of the two S3 servers say; see ``tests/helpers/servers.py``.
S3_SERVERS = ("needs SeaweedFS", "needs moto")


def read_reasons(report: str) -> Counter[str]:
    """Return the reasons of all skipped tests with their numbers."""
    if not report:  # pytest stopped before it ran a test
        return Counter()
    return Counter(
        skip.get("message", "no reason given")
        for skip in ElementTree.fromstring(report).iter("skipped")
        if skip.get("type") == "pytest.skip"  # else an expected failure
    )


def summarize(reasons: Counter[str]) -> str:
    """Return ``skipped 3: 2 x needs an NVIDIA GPU.

    1 x could not import 'tensorflow'``, or an empty string.
    """
    counts = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return f"skipped {reasons.total()}: {counts}" if counts else ""


def lacks_s3(reasons: Counter[str]) -> bool:
    """Return whether both S3 servers were skipped."""
    return all(any(reason.startswith(server) for reason in reasons) for server in S3_SERVERS)


if __name__ == "__main__":
    found = read_reasons(Path(sys.argv[1]).read_text("utf-8"))
    if line := summarize(found):
        print(" ".join(line.split()))
    if lacks_s3(found):
        print("failed: neither SeaweedFS nor moto could be tested. Hint: pip install -e '.[test]'")
        sys.exit(1)
