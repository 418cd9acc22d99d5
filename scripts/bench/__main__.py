"""Run the benchmark that the first argument names; `harness.py` says how."""

from harness import main

main()
