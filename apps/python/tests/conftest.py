"""Where the command and the examples are."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(os.environ["ROCKERY_SOURCE"])


@pytest.fixture
def examples():
    """The folder with fabric files."""
    return ROOT / "examples"


@pytest.fixture
def command():
    """Runs the command `rockery sim`, and returns what it prints."""
    import rockery

    def run(*arguments):
        return subprocess.run([rockery.command(), "sim", *map(str, arguments)], check=True,
                              stdout=subprocess.PIPE).stdout.decode()
    return run


@pytest.fixture
def interruptible():
    """Starts a Python program that SIGINT interrupts, also where the tests ignore SIGINT."""
    def start(program):
        default = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", program], text=True, preexec_fn=default, **pipes)
    return start
