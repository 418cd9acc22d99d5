"""The endurance run: every order and use of a loader works, and leaves nothing open.

Growth is a trend.
"""

import time

import pytest
from helpers import handmade
from helpers.eventually import eventually
from helpers.pictures import encode, photo

SAMPLES = 32


@pytest.fixture(scope="module")
def script(scripts):
    return scripts("endurance")


def test_cycles(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "AUGMENT", [{"RandomResizedCrop": {"size": 96}}, "ToTensor"])
    samples = [("jpg", encode(photo(number)), number % 8) for number in range(SAMPLES)]
    folders = {}
    for fmt in script.FORMATS:
        (tmp_path / fmt).mkdir()
        shared = handmade.make_dataset(tmp_path / fmt / "shared", fmt, samples, shards=4)
        folders |= dict.fromkeys([(fmt, store) for store in script.STORES], shared)
        folders[fmt, script.DAMAGED] = handmade.make_dataset(
            tmp_path / fmt / "damaged", fmt, samples, shards=4
        )
        script.damage(folders[fmt, script.DAMAGED])
    script.start_request_threads()
    endurance, found = script.Endurance(folders), []

    def used(endurance):
        return script.record(time.monotonic(), endurance)

    for cycle in range(2):
        script.run_cycle(endurance, cycle, ["cpu"], SAMPLES)
        found.append(used(endurance))
    assert endurance.loaders >= 2 * len(script.orders(SAMPLES))
    assert endurance.skipped > 0
    # The files that the first object store needs. A thread closes what was dropped.
    assert eventually(lambda: used(endurance)["files"] <= found[0]["files"] + 4)
    assert eventually(lambda: used(endurance)["threads"] <= found[0]["threads"])


def test_growth_is_the_trend_and_not_the_noise(script):
    values = [100, 101, 99, 100, 150, 100, 101, 99]
    samples = []
    for n, value in enumerate(values):
        row = {"minutes": float(n), "host MiB": value, "GPU MiB": 10.0 + n, "files": 5}
        samples.append({**row, "threads": 3})
    assert abs(script.growth(samples, "host MiB")) < 2
    assert script.growth(samples, "GPU MiB") == pytest.approx(7)
    assert script.growth(samples, "files") == script.growth(samples[:1], "threads") == 0
