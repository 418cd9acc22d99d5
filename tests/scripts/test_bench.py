"""Each benchmark runs once as a command with a tiny input, and rejects options that would measure nothing."""

import itertools
import json
import os
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest
from helpers.photographs import photograph
from helpers.pictures import encode
from helpers.servers import NO_SEAWEEDFS, find_weed

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"

#: What the programs that benchmarks start would import. Their conversions have one worker, unless
#: --workers is given.
COMMANDS = (
    "dataprep.commands.convert",
    "dataprep.commands.repair",
    "dataprep.run.convert",
    "dataprep.run.finish",
    "dataprep.shards.write",
    "dataprep.verify.verify",
    "pyarrow.compute",
    "pyarrow.parquet",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.WebPImagePlugin",
    "one_worker",
)
#: The first optimizer imports the compiler of torch, which takes a second, only to exclude its
#: methods from it.
NO_COMPILER = """
compiler = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
compiler.disable = lambda function, *_, **__: function
compiler.graph_break = lambda *_, **__: None
"""
#: Benchmarks that use torch. A fork of a process without it is cheaper.
WITH_TORCH = (
    *("cache", "cache_rivals", "gpu_work", "large_images", "load", "pipelines"),
    *("plan_scale", "sample", "shared_gpu", "train_speed", "training_thread", "tune"),
)
#: Benchmarks that need the interpreter itself: for programs that are next to it, or for the memory
#: of its process. Only their conversions are forks.
SIDE_BY_SIDE = ("index", "report_page", "cache_rivals", "cache")


@pytest.fixture
def bench(python, warm, monkeypatch):
    """A function that runs a benchmark.

    The programs that it starts with `sys.executable` import nothing again.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(name, *arguments):
        server = python if name in WITH_TORCH else warm
        executable = server.executable(*COMMANDS)
        before = (
            f"import sys; sys.path[0] = {str(BENCH)!r}; import conversion, multiprocessing, types\n"
        )
        before += NO_COMPILER if name != "gpu_work" else ""  # PyTorch's profiler asks the compiler
        if name in SIDE_BY_SIDE:
            before += f"conversion.sys = types.SimpleNamespace(executable={executable!r})"
        else:
            before += (
                f"sys.executable = {executable!r}; multiprocessing.set_executable(sys.executable)"
            )
        return server.run(
            BENCH / f"{name}.py", *map(str, arguments), before=before, cwd=ROOT, timeout=600
        )

    return run


@pytest.fixture
def results_of(bench, tmp_path):
    """A function that runs a benchmark, checks what every JSON file has, and returns its results and its output."""

    def run(name, *arguments):
        file = tmp_path / "results.json"
        done = bench(name, *arguments, "--json", file)
        assert done.returncode == 0, done.stderr
        results = json.loads(file.read_text())
        assert results["benchmark"] in {file.stem for file in BENCH.glob("*.py")}
        assert f"scripts/bench/{name}.py" in results["command"]
        assert results["machine"]["cores"] >= 1
        assert {"cpu", "gpus", "memory_gb", "system"} <= set(results["machine"])
        assert {"Python", "numpy", "dataprep-loaders"} <= set(results["versions"])
        for table in results["tables"]:
            assert f"\n{table['title']}\n" in done.stdout
            for row in table["rows"]:
                assert done.stdout.count(f"\n  {next(iter(row.values()))} ") >= 1
        for check in results["checks"]:
            assert check["name"] in done.stdout
            assert (("min" in check) != ("max" in check)) == (check["target"] is not None)
        return results, done.stdout

    return run


def rows_of(results):
    """Return the first column of all tables."""
    return [next(iter(row.values())) for table in results["tables"] for row in table["rows"]]


def checks_of(results):
    return [check["name"] for check in results["checks"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--only", "loaders", "zzz"],
            "--only zzz matches no side. The sides are loaders.build, torchvision",
        ),
        (
            ["--preset", "nope"],
            "'nope' is neither a YAML file nor one of imagenet-train, imagenet-eval, ",
        ),
        (["--count", "3", "--batch-size", "4"], "--count 3 is less than --batch-size 4"),
    ],
)
def test_wrong_options_of_load_are_rejected(photos, arguments, message, bench):
    done = bench("load", "--images", photos, *arguments)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert message in line


def test_load_measures_the_stages(photos, tmp_path, results_of):
    results, printed = results_of(
        "load", "--images", photos, "--count", 16, "--batch-size", 4, "--repeats", 1, "--device", "cpu",
        "--min-seconds", 0, "--work", tmp_path, "--only", "loaders", "apart",
    )  # fmt: skip
    for line in (
        "  loaders.build ",
        "  reading ",
        "  + decoding ",
        "  + augmentation ",
        "  + torch ",
        "bottleneck: ",
    ):
        assert printed.count(f"\n{line}") == (
            2 if line == "  reading " else 1
        )  # also in the shares of the stages
    assert "DALI by hand  " not in printed
    assert results["tables"][0]["rows"][0]["median"] > 0
    assert len(results["tables"][0]["rows"][0]["repeats"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--store", "raw")])
def test_load_compares_sides(photos, tmp_path, options, results_of):
    results, _ = results_of(
        "load", "--images", photos, "--count", 8, "--batch-size", 4, "--repeats", 1, "--device", "cpu",
        "--min-seconds", 0, "--work", tmp_path, "--only", "loaders", "hand", *options,
    )  # fmt: skip
    assert rows_of(results) == ["loaders.build", "DALI by hand"]
    assert checks_of(results) == ["loaders.build / DALI by hand"]


@pytest.mark.slow
def test_tune(photos, tmp_path, results_of):
    results, printed = results_of(
        "tune", "--images", photos, "--count", 16, "--batch-size", 4, "--device", "cpu", "--stores", "256",
        "--threads", 1, "--prefetch", 2, "--seconds", 0.01, "--repeats", 1, "--rounds", 1, "--work", tmp_path,
    )  # fmt: skip
    assert [row["256, 1 rounds"] for row in results["tables"][-1]["rows"]] == [
        "default",
        "tune",
        "best of the grid",
    ]
    assert checks_of(results) == ["256: tune / default", "256: tune / best of the grid"]
    assert "256: tune tried " in printed


@pytest.mark.slow
def test_large_images(photos, tmp_path, results_of):
    results, _ = results_of(
        "large_images", "--images", photos, "--count", 8, "--batch-size", 4, "--device", "cpu", "--threads", 1,
        "--loads", 0, "--seconds", 0.01, "--repeats", 1, "--once", "--work", tmp_path,
    )  # fmt: skip
    assert rows_of(results) == ["DALI by hand", "loaders.build, defaults", "loaders.build"]
    assert checks_of(results) == ["defaults / by hand, images/s"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [("--load", "--device", "cpu", "--samplers", "ShuffledSampler"), ("--out",)]
)
def test_sample(photos, tmp_path, options, results_of):
    results, _ = results_of(
        "sample", "--images", photos, "--count", 64, "--batch-size", 32, "--repeats", 1, "--formats", "tfrecord",
        "--work", tmp_path, *options,
    )  # fmt: skip
    sides = ["native reader", "ShuffledSampler", "ClassBalancedSampler", "PKSampler"]
    if "--samplers" in options:
        sides = sides[:2]
    ratios = [f"{side} / native reader" for side in sides[1:]]
    if "--load" in options:
        sides.append('ShuffledSampler, on_error="skip"')
        ratios.append('ShuffledSampler, on_error="skip" / ShuffledSampler')
    assert rows_of(results) == sides
    assert checks_of(results) == [
        *ratios,
        *(f"{side}, us of the main thread per sample" for side in sides),
    ]
    (native,) = [
        check for check in results["checks"] if check["name"].startswith("native reader, us")
    ]
    assert native["target"] is None  # the target is for the samplers, which are compared with it


@pytest.mark.slow
def test_convert(photos, tmp_path, results_of):
    results, _ = results_of(
        "convert", "--images", photos, "--count", 20, "--repeats", 1, "--work", tmp_path,
        "--only", "dataprep", "processes", "that copy", "GNU", "ShardWriter",
    )  # fmt: skip
    assert rows_of(results) == [
        "dataprep, webdataset",
        "dataprep webdataset, as a command",
        "dataprep, tfrecord",
        "2 processes that only copy",
        "2 that copy, check, read back",
        "GNU tar",
        "ShardWriter, the same files",
        "ShardWriter, image and label",
    ]
    assert "dataprep, webdataset / GNU tar" in checks_of(results)


@pytest.mark.slow
def test_index(photos, tmp_path, results_of):
    results, _ = results_of(
        "index", "--images", photos, "--count", 20, "--repeats", 1, "--work", tmp_path
    )
    assert rows_of(results) == [
        "dataprep index",
        "tfrecord2idx, a command per shard",
        "tfrecord2idx, its loop alone",
        "dataprep index",
        "wds2idx, a command per shard",
        "wds2idx, its loop alone",
    ]


@pytest.mark.slow
def test_downscale(photos, tmp_path, results_of):
    results, _ = results_of(
        "downscale", "--images", photos, "--count", 2, "--different", 2, "--repeats", 1, "--work", tmp_path,
        "--only", "photographs", "JPEG", "--workers", 1, 2,
    )  # fmt: skip
    rows, checks = [], []
    for kind in ("photographs", "JPEG"):
        sides = [
            (f"dataprep, {kind}, workers: {n}", f"Pillow, {kind}, workers: {n}") for n in (1, 2)
        ]
        if kind == "JPEG":  # the photographs of the test are too small to be resized
            rows += ["PSNR, dB", "SSIM", "dB gained to Pillow's JPEG"]
            checks += [
                f"JPEG, {what}"
                for what in ("minimum PSNR", "minimum SSIM", "mean dB gained to Pillow's JPEG")
            ]
        rows += [side for pair in sides for side in pair]
        checks += [" / ".join(pair) for pair in sides]
    assert rows_of(results) == rows
    assert checks_of(results) == checks


@pytest.mark.slow
def test_scaling(photos, tmp_path, results_of):
    results, _ = results_of(
        "scaling", "--photos", photos, "--seconds", 0.01, "--different", 1, "--work", tmp_path / "work",
        "--workers", 2, "--only", "110 KB to 256", "as they are",
    )  # fmt: skip
    with_commands, many = (
        ["1 workers", "2 workers", "2 commands of one worker"],
        ["1 workers", "2 workers"],
    )
    assert rows_of(results) == [*with_commands, *many, *with_commands, *many]
    assert checks_of(results) == [
        f"110 KB to 256, {shards}: {what}"
        for shards in ("one shard", "many shards")
        for what in ("efficiency of 2 workers", "2 workers / 2 commands")
    ]
    assert not (tmp_path / "work").exists()


def test_memory(tmp_path, results_of):
    results, _ = results_of("memory", "--counts", 1000, 1100, "--work", tmp_path / "files")
    assert rows_of(results) == ["1,000", "1,100"]


def test_checks(photos, make_photos, tmp_path, results_of):
    hostile = make_photos(tmp_path / "hostile", 6)
    results, _ = results_of(
        "checks",
        "--images",
        photos,
        "--count",
        6,
        "--repeats",
        1,
        "--work",
        tmp_path / "work",
        "--hostile",
        hostile,
    )
    assert rows_of(results) == [
        *(
            f"{fmt}, {side}"
            for fmt in ("tfrecord", "webdataset")
            for side in ("rerun", "rerun --check-shards", "index check of build")
        ),
        *("header", "decode", "resize", "raw"),
    ]
    assert checks_of(results) == ["highest peak, MB"]


def test_samplers(tmp_path, results_of):
    results, _ = results_of("samplers", "--samples", 5000, "--identities", 200, "--batches", 10)
    assert len(rows_of(results)) == 8
    assert [check["target"] for check in results["checks"]] == [
        "plan_seconds",
        "peak_mb",
        "batch_ms",
    ]


def test_duplicates(results_of, tmp_path):
    for name in ("astronaut", "chelsea", "coffee"):
        (tmp_path / f"{name}.jpg").write_bytes(encode(photograph(name)))
    sizes = ("2500x3000", "3000x3000")
    results, _ = results_of(
        *(
            "duplicates",
            "--photos",
            tmp_path,
            "--search",
            *sizes,
            "--workers",
            1,
            "--dataset",
            "400",
            "100x200",
        )
    )
    changes, photographs, *commands, first, second = (table["rows"] for table in results["tables"])
    assert [row["leaked images"] for (row,) in commands] == ["10 of 10", "50 of 50"]
    searches = (first, second)
    assert {row["found"] for row in changes if "crop" not in row["change"]} == {"100.00%"}
    assert photographs[0]["false pairs"] == 0
    assert [(row["search"], row["planted pairs missed"]) for (row,) in searches] == [
        (size, 0) for size in sizes
    ]


def test_mixing(tmp_path, results_of):
    results, _ = results_of("mixing", "--shards", 40, "--samples", 30)
    mixed = [row["shards in a batch"] for row in results["tables"][0]["rows"]]
    assert mixed == sorted(mixed)


@pytest.mark.skipif(find_weed() is None, reason=NO_SEAWEEDFS)
def test_cache(photos, tmp_path, results_of, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(find_weed()).parent}:{os.environ['PATH']}")
    results, _ = results_of(
        "cache", "--images", photos, "--work", tmp_path / "work", "--count", 64, "--batch-size", 32, "--repeats", 1,
        "--device", "cpu", "--orders", "in order",
    )  # fmt: skip
    assert rows_of(results)[2:] == ["local, in order", "cold, in order", "warm, in order"]
    assert [check["target"] for check in results["checks"]] == ["cold", "warm"]


def test_the_python_of_the_other_libraries_must_have_them(photos, tmp_path, bench):
    folder = tmp_path / "work"
    done = bench(
        "cache_rivals", "--images", photos, "--rivals-python", sys.executable, "--work", folder
    )
    assert done.returncode == 2
    assert "--rivals-python cannot import streaming and litdata" in done.stderr
    assert not folder.exists()


def test_a_missed_target_is_marked(tmp_path):
    code = (
        "from pathlib import Path; from report import Report, Timing\nwith Report('sample',"
        f" Path({str(tmp_path / 'r.json')!r})) as report:\n    report.ratios({{'a': Timing([2.0,"
        " 4.0], [1.0, 1.0]), 'b': Timing([1.0, 3.0], [2.0, 2.0])},\n                  [('a', 'b',"
        " 'reading'), ('b', 'a', 'reading'), ('a', 'absent', 'reading')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=BENCH, check=True
    )
    assert done.stdout.splitlines()[2:] == [
        "a / b: 0.625 (pairs 0.50 to 0.75, by CPU time 2.00; target: at least 0.7, MISSED)",
        "b / a: 1.667 (pairs 1.33 to 2.00, by CPU time 0.50; target: at least 0.7, met)",
    ]
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert [(check["value"], check["min"], check["met"]) for check in checks] == [
        (0.625, 0.7, False),
        (pytest.approx(5 / 3), 0.7, True),
    ]


def test_every_target_is_used():
    """A target is named as a string in the benchmark of its section."""
    for section, targets in tomllib.loads((BENCH / "targets.toml").read_text()).items():
        code = "".join(
            file.read_text()
            for file in BENCH.glob(f"{section}*.py")
            if file.stem != "samplers" or section == "samplers"
        )
        for name, bound in targets.items():
            assert f'"{name}"' in code, (section, name)
            assert set(bound) <= {"min", "max"}
            assert len(bound) == 1


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no file system in memory")
def test_cold_is_rejected_for_a_folder_in_memory(photos, bench):
    done = bench("index", "--images", photos, "--cold", "--work", "/dev/shm/no such folder")
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        == "--cold: /dev/shm/no such folder is in memory. Hint: set --work to a folder on a disk."
    )
    assert not Path("/dev/shm/no such folder").exists()


def test_report_page(photos, tmp_path, results_of):
    results, _ = results_of(
        "report_page",
        "--images",
        photos,
        "--work",
        tmp_path / "work",
        "--shard",
        10,
        "--counts",
        10,
        30,
    )
    assert rows_of(results) == ["10", "30"]
    assert all(row["seconds"] > 0 and row["peak MB"] > 10 for row in results["tables"][0]["rows"])


def test_plan_scale(tmp_path, results_of):
    """10^4 and 10^5 samples. Each of the other steps is like one of these."""
    steps = ["plan", "rows of 20 shards", "finish", "build"]
    results, shown = results_of(
        "plan_scale", "--work", tmp_path / "work", "--quick", "--steps", *steps
    )
    measured, extended = results["tables"]
    assert [*dict.fromkeys(row["step"] for row in measured["rows"])] == steps
    assert max(row["samples"] for row in measured["rows"]) == 100_000
    assert all(row["peak MB"] > 10 for row in measured["rows"])
    assert [row["samples"] for row in extended["rows"] if row["step"] == "build"] == [10**8, 10**9]
    assert len(checks_of(results)) == 3
    assert "build, 100 shards: " in shown


def test_train_speed_compares_feeds_with_a_cached_batch(photos, tmp_path, results_of):
    results, _ = results_of(
        "train_speed", "--images", photos, "--count", 8, "--models", "tiny", "--batch-sizes", 4, "--stores", "full",
        "--device", "cpu", "--rounds", 1, "--seconds", 0, "--hand", "--work", tmp_path,
    )  # fmt: skip
    assert rows_of(results) == ["cached batch", "loaders, full", "DALI by hand, full"]
    ratios = ["loaders, full / cached batch", "loaders, full / DALI by hand, full"]
    assert checks_of(results) == [f"tiny, batches of 4: {ratio}" for ratio in ratios]


@pytest.mark.parametrize(
    ("launch", "step", "rate"),
    [
        (0.002, 0.002, 1_000),
        (0.002, 0.009, 1_000),
        (0.002, 0.02, 500),
        (0.009, 0.002, 1_000),
        (0.02, 0.002, 500),
    ],
    ids=["workers", "workers, just", "the GPU", "workers, just beside the CPU", "the CPU"],
)
def test_the_limit_is_measured_whatever_it_is(launch, step, rate, scripts, monkeypatch):
    """Four workers make ten images in 40 ms each, two batches ahead. Only the clock is a model."""
    module = scripts("train_speed")
    now = gpu_ends = 0.0
    requested = dict.fromkeys(range(8), 0.0)
    made, handed_over = dict.fromkeys(range(-4, 0), 0.0), {-1: 0.0}

    def batches():
        nonlocal now
        for number in itertools.count():
            made[number] = max(requested[number], made[number - 4]) + 0.04
            handed_over[number] = max(made[number], handed_over[number - 1]) + 0.001
            now = max(now, handed_over[number])
            requested[number + 8] = now
            yield None, None

    def take_step(*_):
        nonlocal now, gpu_ends
        now += launch
        gpu_ends = max(now, gpu_ends) + step

    def synchronize():
        nonlocal now
        now = max(now, gpu_ends)

    monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(module, "synchronize", synchronize)
    feed = module.Feed(batches(), prefetched=8, workers=4)
    for wait in (0, 0.03, 1):
        now += wait
        measured, _ = module.train(feed, take_step, 40, batch_size=10)
        assert measured == pytest.approx(rate, rel=0.04)


def test_pipelines_are_compared_alone_and_beside_a_model(photos, tmp_path, results_of):
    results, _ = results_of(
        "pipelines", "--images", photos, "--count", 8, "--models", "no model", "tiny", "--sizes", 1, 1,
        "--stores", "full", "--device", "cpu", "--rounds", 1, "--seconds", 0.01, "--work", tmp_path,
    )  # fmt: skip
    assert rows_of(results) == ["full, 1", "full, 2", "full, 1", "full, 2", "one cached batch"]


def test_the_work_of_the_gpu_is_compared_with_a_step(photos, tmp_path, results_of):
    results, _ = results_of(
        "gpu_work", "--images", photos, "--count", 8, "--batch-sizes", 4, "--models", "tiny", "--stores", "full",
        "--device", "cpu", "--profiled", 2, "--rounds", 1, "--seconds", 0.01, "--work", tmp_path,
    )  # fmt: skip
    assert rows_of(results) == ["loaders, full", "DALI by hand, full"]
    assert all(
        row["tiny, step ms"] > 0 and row["kernels"] == 0 for row in results["tables"][0]["rows"]
    )


def test_time_that_kernels_cover(scripts):
    covered = scripts("gpu_work").covered
    assert covered([]) == 0
    assert covered([(5, 7), (0, 2), (1, 3), (2, 2.5)]) == 5


def test_training_thread_measures_every_order(photos, tmp_path, results_of):
    results, _ = results_of(
        "training_thread", "--images", photos, "--count", 16, "--batch-size", 4, "--batches", 2, "--device", "cpu",
        "--cheap", "--work", tmp_path,
    )  # fmt: skip
    assert len(rows_of(results)) == 4
    assert all(row["beside"] > 0 for row in results["tables"][0]["rows"])
    assert len(checks_of(results)) == 1


def test_processes_that_share_a_gpu_are_compared_with_one_alone(
    photos, tmp_path, results_of, bench
):
    arguments = (
        "--images",
        photos,
        "--count",
        8,
        "--batch-size",
        4,
        "--device",
        "cpu",
        "--seconds",
        0.2,
    )
    arguments += ("--work", tmp_path)
    results, _ = results_of("shared_gpu", *arguments, "--processes", 1, 2)
    rows = results["tables"][0]["rows"]
    assert [(row["processes"], row["failed"], row["wrong"]) for row in rows] == [
        (1, 0, 0),
        (2, 0, 0),
    ] * 2
    assert all(row["images"] >= 4 * row["processes"] for row in rows)
    assert checks_of(results) == ["wrong images", "failed processes"]
    (file,) = tmp_path.glob("expected-0-*.npy")
    first, second = np.load(file)
    np.save(file, [first, 255 - second])
    found = json.loads(
        bench("shared_gpu", *arguments, "--side", "loaders.build").stdout.splitlines()[-1]
    )
    assert (
        found["wrong"] == (found["images"] // 4 + 1) // 2 * 4
    )  # of every other batch, beginning with the first


@pytest.mark.skipif(find_weed() is None, reason=NO_SEAWEEDFS)
def test_bucket_requests(bench):
    """The figures in docs/object-storage.md."""
    done = bench("bucket_requests", "--shards", 1, 3)
    assert done.returncode == 0, done.stderr
    fenced, plain = done.stdout.splitlines()
    assert fenced.startswith("with fencing: 16 for each shard, 26 for the run;")
    assert plain.startswith("without fencing: 4 for each shard, 20 for the run;")
