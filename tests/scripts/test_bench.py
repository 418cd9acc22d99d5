"""Each benchmark runs once with a tiny input, and rejects options that would measure nothing."""

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers.photographs import photograph
from helpers.pictures import encode
from helpers.rows import evaluate, read_rows
from helpers.servers import NO_SEAWEEDFS, find_weed

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"

#: What the programs that benchmarks start would import. Their conversions have one worker, unless
#: --workers is given.
COMMANDS = (
    *("dataprep.commands.convert", "dataprep.run.convert"),
    *("dataprep.run.finish", "dataprep.shards.write", "pyarrow.compute", "pyarrow.parquet"),
    *("PIL.JpegImagePlugin", "PIL.PngImagePlugin", "PIL.WebPImagePlugin", "one_worker"),
)
#: The first optimizer imports the compiler of torch, which takes a second, only to exclude its
#: methods from it.
NO_COMPILER = """
compiler = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
compiler.disable = lambda function, *_, **__: function
compiler.graph_break = lambda *_, **__: None
"""
#: A fork of a process without torch is cheaper.
WITHOUT_TORCH = ("cloud", "convert", "duplicates", "scale")
#: The number of rows and the options of each benchmark, or why it does not run.
RUNS = dict(read_rows(__file__, "runs"))


@pytest.fixture
def bench(python, warm, monkeypatch):
    """A function that runs a benchmark.

    The programs that it starts with `harness.PYTHON` import nothing again.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(name, *arguments):
        server = warm if name in WITHOUT_TORCH else python
        executable = server.executable(*COMMANDS)
        code = (
            f"import multiprocessing, sys, types; sys.path[0] = {str(BENCH)!r}\n"
            f"import harness; harness.PYTHON = {executable!r}\n"
            f"multiprocessing.set_executable({executable!r}); sys.argv[0] = 'scripts/bench'\n"
        )
        # PyTorch's profiler asks the compiler.
        code += NO_COMPILER if name != "train_speed" else ""
        code += "harness.main()"
        return server.run("-c", code, name, *map(str, arguments), cwd=ROOT, timeout=600)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_benchmark(name, bench, photos, tmp_path):
    run, name = RUNS[name], name.partition(",")[0]
    count, rows, options = run.partition(" rows: ")
    if not rows:
        pytest.skip(f"needs {run}")
    if name in ("cache", "cloud", "simulate") and find_weed() is None:
        pytest.skip(NO_SEAWEEDFS)
    few = tmp_path / "few"
    few.mkdir()
    for number in ("astronaut", "chelsea", "coffee"):
        (few / f"{number}.jpg").write_bytes(encode(photograph(number)))
    folders = {"photos": photos, "few": few, "work": tmp_path / "work"}
    file = tmp_path / "results.json"
    if "--undecoded" in options and on_memory(tmp_path):
        pytest.skip("needs a disk")
    done = bench(name, *shlex.split(options.format(**folders)), "--json", file)
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    rows = [row for table in results["tables"] for row in table["rows"]]
    names = [str(next(iter(row.values()))) for row in rows]
    assert names
    assert count in (str(len(names)), "0"), names
    assert [first for first in names if f"\n  {first} " not in done.stdout] == []
    assert results["benchmark"] == name
    assert results["command"].startswith(f"python scripts/bench {name} ")
    assert {"cpu", "cores", "gpus", "memory_gb", "system"} <= set(results["machine"])
    assert {"Python", "numpy"} <= set(results["versions"])
    for check in results["checks"]:
        assert f"{check['name']}: " in done.stdout
        assert (check["target"] is None) == ("met" not in check)
    if name in CHECKED:
        CHECKED[name](rows, results["checks"])


def on_memory(folder):
    query = ["stat", "-f", "-c", "%T", str(folder)]
    return subprocess.check_output(query, text=True).strip() in ("tmpfs", "ramfs")


def fencing_costs_what_the_guide_says(rows, _):
    assert [row["for each shard"] for row in rows] == ["17", "4"]
    assert [row["for the run"] for row in rows] == ["26", "20"]


def planted_copies_are_found(rows, _):
    assert {row["found"] for row in rows[:11] if "crop" not in row["change"]} == {"100.00%"}
    assert rows[11]["false pairs"] == 0
    assert rows[12]["leaked images"] == "1000 of 1000"


def batches_are_right(rows, _):
    assert all(row["wrong"] == row["failed"] == 0 for row in rows)
    assert all(row["images"] >= 4 * row["processes"] for row in rows)


def ranks_have_different_classes(rows, _):
    mixed = [row["classes"] for row in rows if "classes" in row]
    assert mixed[-4:] == [1, 1, 2, 2]
    assert all(row["USS MB"] > 0 and row["MB read"] > 0 for row in rows[:2])


def the_simulation_is_right(rows, _):
    assert all(row["simulated MB"] == pytest.approx(row["MB"], rel=0.3, abs=0.5) for row in rows)


def larger_windows_mix_better(rows, _):
    mixed = [row["shards in a batch"] for row in rows if "window" in row]
    assert mixed == sorted(mixed)


#: What is checked of the rows besides their names.
CHECKED = {
    "cloud": fencing_costs_what_the_guide_says,
    "simulate": the_simulation_is_right,
    "ranks": ranks_have_different_classes,
    "duplicates": planted_copies_are_found,
    "shared_gpu": batches_are_right,
    "scale": larger_windows_mix_better,
}


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong options are rejected"))
def test_wrong_options_are_rejected(row, message, photos, tmp_path, bench):
    name, arguments = evaluate(row, globals())
    work = Path("/dev/shm/no such folder") if "undecoded" in arguments else tmp_path / "work"
    if "undecoded" in arguments and not work.parent.is_dir():
        pytest.skip("there is no file system in memory")
    given = ["--device", "cpu", "--count", "8", "--batch-size", "4"] if "zzz" in arguments else []
    done = bench(name, "--images", photos, "--work", work, *given, *arguments.split())
    assert done.returncode == 2
    assert message in done.stderr
    assert "undecoded" not in arguments or not work.exists()


def test_the_list_has_every_subject(scripts, capsys, monkeypatch):
    harness = scripts("harness")
    assert set(harness.subjects()) == {name.partition(",")[0] for name in RUNS}
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "--list"])
    harness.main()
    shown = capsys.readouterr().out
    for name, facts in harness.subjects().items():
        assert f"{name}\n    {facts['WHAT']}\n    {facts['TAKES']}" in shown
        assert facts["WHAT"].endswith((".", "?"))


def commands_in_docs():
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *BENCH.glob("*.py")]
    files += [*(ROOT / "loaders").rglob("*.py"), *(ROOT / "dataprep").rglob("*.py")]
    for file in files:
        for found in re.finditer(r"scripts/bench ([a-z_]+)((?:\s+[^\s`#|;)]+)*)", file.read_text()):
            yield file.name, found[1], found[2]


def test_commands_in_the_guides_exist(scripts):
    """A guide names subjects, and options that they have."""
    harness = scripts("harness")
    known = harness.subjects()
    seen = set()
    for file, name, rest in commands_in_docs():
        assert name in known, f"{file}: scripts/bench {name}"
        seen.add(name)
        parser, _ = harness.make_parser(name)
        command = re.split(r"\n\n|\n\s*(?:python|torchrun)", rest)[0]
        for option in re.findall(r"(?<=\s)--[a-z-]+", command):
            assert option in parser._option_string_actions, f"{file}: {name} {option}"
    assert len(seen) > 15
    recorded = json.loads((ROOT / "docs" / "measurements.json").read_text("utf-8"))
    for record in recorded.values():
        assert {len(row) for row in record["rows"]} == {len(record["columns"])}
        for command in record["commands"]:
            *_, name, rest = re.split(r"^(?:python scripts/bench|loaders) (\w+)", command)
            if name in known:
                harness.make_parser(name)[0].parse_args(shlex.split(rest))
            else:
                assert command.startswith("loaders bench ")


def test_a_missed_target_is_marked(scripts, tmp_path, capsys):
    harness = scripts("harness")
    runs = {"a": iter([(9, 1.0), (2, 1.0), (4, 1.0)]), "b": iter([(9, 2.0), (1, 2.0), (3, 2.0)])}
    sides = {name: partial(next, seconds) for name, seconds in runs.items()}
    target = harness.at_least(0.7)
    pairs = [("a", "b", target), ("b", "a", target), ("a", "absent", target)]
    report = harness.Report("load")
    report.compare("rates", sides, images=10, repeats=2, pairs=pairs)
    report.write(tmp_path / "r.json")
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "a / b: 0.625 (pairs 0.50 to 0.75, by CPU time 2.00; target: at least 0.7, MISSED)",
        "b / a: 1.667 (pairs 1.33 to 2.00, by CPU time 0.50; target: at least 0.7, met)",
    ]
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert [(each["target"], each["met"]) for each in checks] == [
        ("at least 0.7", False), ("at least 0.7", True),
    ]  # fmt: skip
