"""One file per command: it parses options, calls the package, and prints the result.

Each command imports heavy modules inside its callback, so `dataprep --help` loads none of them.

::

    all commands       group: begin here; base, sections, param_types
    prepare            convert, append, index; plan, work and finish on several machines; revert
    options            conversion_options: source_options, split_options, shard_options, image_options; engine_options
    look and mend      info, plan_info, diff, verify, repair, duplicates, report
    what it prints     console, progress_bars, meter, dry_run, results
"""
