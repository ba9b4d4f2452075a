"""Runs rdma-core's test suite (Debian's python3-pyverbs) test by test, and prints a line for each:

    test NAME<tab>OUTCOME<tab>MILLISECONDS<tab>REASON

The outcomes are pass, skip, fail (an assertion), error (any other exception), timeout and crash. Except
for pass and skip, the exception's lines follow, each with "| " in front. A child runs the tests one by
one. If it dies, or is silent for longer than a test may take, the running test counts as crashed or
timed out, and another child runs the tests after it.

Some tests choose at random what they do. Each is seeded by its name, so it chooses the same in every run.
"""

import gzip
import multiprocessing
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
import unittest

# Where the suite is, and the copy that is made of it. A guest has nothing of them in its environment.
DEBIAN = os.environ.get("UVERBS_SUITE", "/usr/share/doc/rdma-core/tests")
TESTS = os.environ.get("UVERBS_SUITE_COPY", "/tmp/tests")
DEVICE = os.environ["UVERBS_TEST_DEVICE"]
# Of a test, and of a child: longer, since what waits inside a system call hears no alarm. Beside other work on
# two cores a test with some hundred page faults takes more than 25 s.
LIMIT = 60
SILENCE = 90
# Of a child before its first test: it imports the suite and what that needs.
LOADING = 300
LINES = 40


class Limit(BaseException):
    """A test ran for too long. Not an Exception, so that no test's own handler catches it."""


def unpack():
    """Copies the suite; Debian compresses its larger files."""
    os.makedirs(TESTS)
    for name in os.listdir(DEBIAN):
        path = os.path.join(DEBIAN, name)
        plain = os.path.join(TESTS, name.removesuffix(".gz"))
        with (gzip.open if name.endswith(".gz") else open)(path, "rb") as source, open(plain, "wb") as target:
            shutil.copyfileobj(source, target)


def load():
    """All tests, by name."""
    sys.path[:0] = [TESTS, os.path.dirname(TESTS)]
    sys.argv[1:] = ["--dev", DEVICE]
    from args_parser import parser

    parser.parse_args()
    tests = {}

    def walk(suite):
        for item in suite:
            if isinstance(item, unittest.TestSuite):
                walk(item)
            else:
                tests[item.id().removeprefix("tests.")] = item

    walk(unittest.defaultTestLoader.loadTestsFromModule(__import__("tests")))
    return tests


def preload():
    """Imports what tests import when they run. It takes seconds, which are not the first such test's."""
    try:
        import tests.mlx5_prm_structs
    except (ImportError, unittest.SkipTest):
        pass


class Result(unittest.TestResult):
    """One test's outcome. If a part of it (a subtest) fails, it fails."""

    def __init__(self):
        super().__init__()
        self.outcome = "pass"
        self.reason = ""
        self.lines = []

    def note(self, outcome, error):
        self.outcome = "timeout" if error[0] is Limit else outcome
        text = str(error[1]).strip()
        self.reason = f"{error[0].__name__}: {text}"
        self.lines = "".join(traceback.format_exception(*error)).splitlines()[-LINES:]

    def addError(self, test, err):
        self.note("error", err)

    def addFailure(self, test, err):
        self.note("fail", err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note("fail" if issubclass(err[0], AssertionError) else "error", err)

    def addSkip(self, test, reason):
        self.outcome, self.reason = "skip", reason


def expired(number, frame):
    raise Limit(f"not done after {LIMIT} s")


def say(line):
    print(line, flush=True)


def is_wanted(name, parts):
    return not parts or any(part in name for part in parts)


def child(first, wanted):
    """Runs the tests from number `first` on."""
    signal.signal(signal.SIGALRM, expired)
    # The suite's processes inherit what it has open. Python's default is another one since 3.14.
    multiprocessing.set_start_method("fork")
    names = load()
    preload()
    names = {name: test for name, test in sorted(names.items()) if is_wanted(name, wanted)}
    say(f"count {len(names)}")
    for number, (name, test) in enumerate(names.items()):
        if number < first:
            continue
        say(f"start {number} {name}")
        random.seed(name)
        result = Result()
        began = time.monotonic()
        signal.alarm(LIMIT)
        try:
            unittest.TestSuite([test]).run(result)
        except Limit:
            result.note("timeout", sys.exc_info())
        signal.alarm(0)
        report(name, result.outcome, time.monotonic() - began, result.reason)
        for line in result.lines:
            say(f"| {line}")
    say("end")


def report(name, outcome, seconds, reason):
    reason = " ".join(reason.split())
    say(f"test {name}\t{outcome}\t{seconds * 1000:.0f}\t{reason}")


def lines(process):
    """The child's lines, until it ends or is silent for too long. Its own children may still have the pipe."""
    pending = b""
    patience = LOADING
    heard = time.monotonic()
    pipe = process.stdout.fileno()
    while True:
        gone = process.poll() is not None
        if select.select([pipe], [], [], 0.2)[0]:
            heard = time.monotonic()
            got = os.read(pipe, 65536)
            *whole, pending = (pending + got).split(b"\n")
            for line in whole:
                if line.startswith(b"start "):
                    patience = SILENCE
                yield line.decode(errors="replace")
            if got:
                continue
            process.wait()
            return
        if gone or time.monotonic() - heard > patience:
            return


def parent(wanted):
    """Starts children until all tests have run. Passes on the tests' lines only."""
    unpack()
    first = 0
    while True:
        command = [sys.executable, __file__, "--child", str(first), *wanted]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        running, ended = None, False
        for line in lines(process):
            word, _, rest = line.partition(" ")
            if word == "count":
                if first == 0:
                    say(line)
            elif word == "start":
                number, name = rest.split(" ", 1)
                running, first, began = name, int(number) + 1, time.monotonic()
            elif word in ("test", "|"):
                running = None
                say(line)
            elif word == "end":
                ended = True
        silent = process.poll() is None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = process.wait()
        if ended:
            return
        if running is None:
            sys.exit(f"the child ended between tests ({status})")
        outcome = "timeout" if silent else "crash"
        report(running, outcome, time.monotonic() - began, "silent" if silent else f"ended with {status}")


if sys.argv[1:2] == ["--child"]:
    child(int(sys.argv[2]), sys.argv[3:])
else:
    parent(sys.argv[1:])
