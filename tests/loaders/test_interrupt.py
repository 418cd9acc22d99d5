"""Ctrl-C within an epoch ends a training process immediately and leaves no child process."""

import os
import signal
import subprocess
import sys

import pytest
from helpers.processes import group_members

CODE = """
import sys, loaders
loader = loaders.build(sys.argv[1], batch_size=4, transforms=sys.argv[2], device="cpu", num_threads=2)
while True:
    for number, batch in enumerate(loader):
        print(number, flush=True)
"""


@pytest.mark.parametrize("transforms", ["imagenet-train", "modern-train"])
def test_an_interrupt_ends_the_process_and_its_children(make_dataset, mixed, transforms):
    folder = make_dataset("tfrecord", mixed)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CODE, folder, transforms],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for _ in range(12):
        assert process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode in (-signal.SIGINT, 130, 1)
    assert "KeyboardInterrupt" in errors
    assert group_members(process.pid) == []
