"""How many examples an expensive property test tries.

Without HYPOTHESIS_RANDOM, every run of the suite tries the same examples, so the suite tries a
quarter of them. With HYPOTHESIS_RANDOM=1, a run tries other examples, and all of them.
"""

from __future__ import annotations

import math
import os

#: Whether each run tries other examples.
RANDOM = bool(os.environ.get("HYPOTHESIS_RANDOM"))

#: What Hypothesis tries by default.
DEFAULT = 100

#: One of so many examples is tried. With ``--fast``, fewer.
ONE_OF = 1 if RANDOM else 4


def examples(count: int = DEFAULT) -> int:
    """Return the number of examples that this run tries, for a test that asks for `count`."""
    return math.ceil(count / ONE_OF)
