"""Fuzzing: mutated input for everything that the project reads, with independent readers as oracles.

A *surface* is one kind of input: a file in `surfaces` with two functions. ``make(rng)`` returns a
case, which is a set of files by name, most of them mutated. ``check(case, folder)`` writes the case
into an empty folder, runs the commands and the loader on it, and raises `Fault` if a property does
not hold:

- no traceback, no signal, no hang, no exit status that blames the machine
- at most 512 MiB of memory and 5 s of CPU time for each command
- nothing is written outside of the output folder, and nothing is executed
- messages are short and free of control characters
- a dataset is never "complete" or "sound" where an oracle (DALI on the CPU, Pillow, tar, protobuf,
  ...) disagrees

The normal test suite checks a fixed sequence of cases (`test_fuzz`). To run more::

    scripts/fuzz --minutes 60                            # all surfaces in turn, with a new seed
    scripts/fuzz --minutes 5 --surface tar --seed 7
    scripts/fuzz fuzz-found/tar-7-123.zip                # check one case again

The input of each failing case is saved in ``fuzz-found``, and the command that checks it again is
printed. To debug one, unzip it: it contains the files as the commands see them.

To add a surface, add a file to `surfaces` and its name there. `mutate` has mutations of bytes, text
and JSON, `checks` runs commands and the loader in limited child processes, `sources` converts and
compares what a surface makes, and `seeds` makes intact datasets.
"""
