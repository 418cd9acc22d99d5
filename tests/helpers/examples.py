"""How many examples a property test tries.

Without HYPOTHESIS_RANDOM every run of the suite tries the same examples, so more of them find nothing new in the next
run: the suite tries two fifths of what a test asks for. With HYPOTHESIS_RANDOM=1 it tries other examples each time, and
all of them.
"""

from __future__ import annotations

import os

#: Whether each run tries other examples.
RANDOM = bool(os.environ.get("HYPOTHESIS_RANDOM"))

#: What Hypothesis tries by default.
DEFAULT = 100


def examples(count: int = DEFAULT) -> int:
    """Return the number of examples that this run tries, for a test that asks for `count`."""
    return count if RANDOM else -(-count * 2 // 5)
