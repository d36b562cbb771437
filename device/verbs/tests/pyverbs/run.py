"""Runs the cases of rdma-core's own tests and prints the result and name of each: `run.py FOLDER --dev …`.

FOLDER is where the distribution has them, compressed. Where the variable CASES is set, only those run
that have it in their names.
"""

import gzip
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader


def unpack(source, folder):
    for path in pathlib.Path(source).iterdir():
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as packed, open(folder / path.name.removesuffix(".gz"), "wb") as plain:
            shutil.copyfileobj(packed, plain)


class Report(unittest.TestResult):
    def say(self, word, test, reason=""):
        print(word, test.id(), str(reason).strip().split("\n")[-1], flush=True)

    def addSuccess(self, test):
        self.say("ok", test)

    def addSkip(self, test, reason):
        self.say("skipped", test, reason)

    def addError(self, test, error):
        self.say("error", test, repr(error[1]))

    def addFailure(self, test, error):
        self.say("failure", test, repr(error[1]))


class Loader(unittest.TestLoader):
    """Takes a pattern without a name, as rdma-core 50 passes it and Python 3.12 refuses it."""

    def loadTestsFromModule(self, module, *arguments, pattern=None):
        return super().loadTestsFromModule(module, pattern=pattern)


# The tests share open devices with their children, which from Python 3.14 on are fresh processes by default.
multiprocessing.set_start_method("fork")

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    unpack(sys.argv.pop(1), folder)
    sys.path.insert(0, name)
    from args_parser import parser

    tests = SourceFileLoader("tests", str(folder / "__init__.py")).load_module()
    parser.parse_args()

    def of(suite):
        for test in suite:
            yield from of(test) if isinstance(test, unittest.TestSuite) else [test]

    wanted = os.environ.get("CASES", "")
    cases = of(Loader().loadTestsFromModule(tests))
    unittest.TestSuite(case for case in cases if wanted in case.id()).run(Report())
