"""Ctrl-C within an epoch ends a training process immediately and leaves no child process."""

import json
import signal

from helpers import HELPERS

#: Starts the training in a session of its own, interrupts the whole session, and reports how it
#: ended.
CODE = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[3])
from processes import group_members
import loaders

read, write = os.pipe()
training = os.fork()
if not training:
    os.setsid()
    os.dup2(write, 1)
    os.close(read), os.close(write)
    loader = loaders.build(sys.argv[1], batch_size=4, transforms=sys.argv[2], device="cpu", num_threads=2)
    while True:
        for number, batch in enumerate(loader):
            print(number, flush=True)
os.close(write)
with open(read) as output:
    lines = [output.readline() for _ in range(12)]
    os.killpg(training, signal.SIGINT)
    output.read()  # so that the training can print
status = os.waitstatus_to_exitcode(os.waitpid(training, 0)[1])
print(json.dumps([lines, status, group_members(training)]))
"""


def test_an_interrupt_ends_the_process_and_its_children(make_dataset, mixed, python):
    done = python.run("-c", CODE, make_dataset("tfrecord", mixed), "modern-train", HELPERS)
    assert done.returncode == 0, done.stderr
    lines, status, left = json.loads(done.stdout)
    assert all(lines), done.stderr
    assert status in (-signal.SIGINT, 130, 1)
    assert "KeyboardInterrupt" in done.stderr
    assert left == []
