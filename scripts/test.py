#!/usr/bin/env python3
"""Builds all tests of the workspace and runs their programs, several at a time.

`cargo test` runs test programs one after the other and stops at the first that fails. Many of rockery's test
programs wait most of the time (for a guest to boot, for a timeout to pass), so two at a time leave the
processors less idle, and a run that goes on after a failure names all failures at once.

The tests with real programs (testing/programs) are linked into one program for each subject. Each of their
modules runs as a process of its own, as if it were a test program: what is said below of programs is true of
these modules.

A test program that does not make network namespaces of its own runs in one, since programs that share a
loopback would share UDP port 4791 and the agent's socket as well. Its output is printed in one piece when it
has ended. Two programs that run labs in real time never run at once. The programs that took longest in the
last run start first: target/test-seconds.json has its seconds, and scripts/test-seconds.json those of a run
on two otherwise idle cores, for a checkout without a last run.

Tests that failed run a second time when all programs have ended, one program at a time. A test that passes
then is named as flaky at the end, with the output of its failure above, and does not fail the run unless
--strict is given (ROCKERY_TEST_STRICT=1).

Property tests draw their cases from one fixed seed (PROPTEST_RNG_SEED, unless it is set), so that two runs of
one tree have one result. `cargo test` draws other cases each time, and `make nightly` many of them.

A run that leaves files in the checkout, or changes files that git tracks, fails. The least free disk space of
the run is printed at the end, since a full disk makes tests fail for reasons that few of them name.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = ROOT / "target" / "test-seconds.json"
USUAL_SECONDS = ROOT / "scripts" / "test-seconds.json"
# Its tests make their own namespaces, and some fetch packages, which a namespace without a way out cannot.
OWN_NAMESPACES = "rockery-programs"
IN_A_NAMESPACE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
# Programs whose tests run labs in real time: two at once on two processors make each other late.
IN_REAL_TIME = "rockery-programs lab::"
# The seed of property tests.
PROPERTY_SEED = "4791"
# A program that hangs is ended after this long, which is several times what the slowest takes on two cores.
LIMIT_SECONDS = 1800


class Program(typing.NamedTuple):
    """A test program, or one module of a program whose modules run each as a process."""
    package: str
    name: str
    executable: str
    folder: pathlib.Path
    # The tests of the module; without any, all of the program that match the filter.
    tests: tuple = ()

    @property
    def label(self):
        return f"{self.package} {self.name}"


def built(cargo, arguments, filters):
    """Builds the tests, and lists the programs."""
    # All targets of the workspace in one set of features: the programs and libraries that tests run as well.
    everything = subprocess.run([cargo, "build", "--workspace", "--all-targets"], cwd=ROOT)
    if everything.returncode != 0:
        sys.exit(everything.returncode)
    command = [cargo, "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    build = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if build.returncode != 0:
        sys.exit(build.returncode)
    programs = []
    for line in build.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            target = message["target"]
            program = Program(package_name(message["package_id"]), target["name"], message["executable"],
                              pathlib.Path(message["manifest_path"]).parent)
            is_by_subject = program.package == OWN_NAMESPACES and "test" in target["kind"]
            programs += by_module(program, filters) if is_by_subject else [program]
    return programs


def package_name(identifier):
    """The package in `path+file:///…/core/rnic#rockery-rnic@0.1.0`.

    Cargo leaves the name out where it is that of the folder: `path+file:///…/apps/rockery#0.1.0`.
    """
    folder, _, name = identifier.rpartition("#")
    return name.split("@")[0] if "@" in name else folder.rsplit("/", 1)[-1]


def by_module(program, filters):
    """One program for each module with tests that match the filter; a test outside of modules is its own."""
    command = [program.executable, "--list", "--format=terse", *filters]
    listed = subprocess.run(command, check=True, cwd=program.folder, text=True, stdout=subprocess.PIPE).stdout
    modules = {}
    for line in listed.splitlines():
        test, _, kind = line.rpartition(": ")
        if kind == "test":
            modules.setdefault(test.partition("::")[0], []).append(test)
    return [program._replace(name=f"{program.name}::{module}", tests=tuple(tests))
            for module, tests in modules.items()]


def failed_tests(output):
    """The tests that libtest lists as failed at the end of its output, none where a signal ended it."""
    listed = output.rpartition("\nfailures:\n")[2].partition("\n\n")[0]
    names = [line.strip() for line in listed.splitlines()]
    is_list = "\ntest result: FAILED." in output and all(name and " " not in name for name in names)
    return names if is_list else []


def run(program, arguments):
    """Runs one test program; returns (succeeded, seconds, output)."""
    command = [program.executable, *arguments]
    if program.package != OWN_NAMESPACES:
        command = IN_A_NAMESPACE + command
    environment = dict(os.environ, CARGO_MANIFEST_DIR=str(program.folder), CARGO_PKG_NAME=program.package,
                       ROCKERY_TEST_IS_BUILT="1")
    environment.setdefault("PROPTEST_RNG_SEED", PROPERTY_SEED)
    begin = time.monotonic()
    try:
        done = subprocess.run(command, cwd=program.folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=LIMIT_SECONDS)
        succeeded, output = done.returncode == 0, done.stdout
        if done.returncode < 0:
            output += f"\ntest program ended by signal {-done.returncode}\n"
    except subprocess.TimeoutExpired as expired:
        partial = expired.stdout or b""
        output = partial.decode(errors="replace") if isinstance(partial, bytes) else partial
        succeeded, output = False, output + f"\nstill running after {LIMIT_SECONDS} s: ended\n"
    return succeeded, time.monotonic() - begin, output


def run_selected(program, filters):
    """Runs the tests of a program that match the filter, those of a module by their names."""
    return run(program, ["--exact", *program.tests] if program.tests else filters)


def run_again(program, output, filters):
    """Runs the failed tests of a program again; returns whether they passed."""
    names = failed_tests(output)
    again = run(program, ["--exact", *names]) if names else run_selected(program, filters)
    succeeded, seconds, output = again
    if names and f"test result: ok. {len(names)} passed" not in output:
        succeeded = False
    what = ", ".join(names) or "all tests"
    print(f"\n=== {program.label}, {what} again ({seconds:.1f} s)\n{output}", flush=True)
    return succeeded, names


def disturbs(program, running):
    """Whether the program and one that runs both run labs in real time."""
    return is_in_real_time(program) and any(map(is_in_real_time, running))


def is_in_real_time(program):
    return program.label.startswith(IN_REAL_TIME)


def run_all(programs, filters, jobs):
    """Runs the programs, `jobs` at a time; yields (program, (succeeded, seconds, output)) as they end."""
    waiting, running = list(programs), {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while waiting or running:
            for program in list(waiting):
                if len(running) < jobs and not disturbs(program, running.values()):
                    waiting.remove(program)
                    running[pool.submit(run_selected, program, filters)] = program
            ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                yield running.pop(future), future.result()


def changed_files():
    """What git says of changed and untracked files of the checkout; nothing where there is no git."""
    # Tests run as root in the checkout of another user, which git refuses by itself.
    command = ["git", "-c", "safe.directory=*", "status", "--porcelain"]
    try:
        status = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return set()
    return set(status.stdout.splitlines())


class FreeSpace:
    """The least free space of the folders that tests write to, looked at every second by a thread."""

    def __init__(self):
        self.folders = [str(ROOT), tempfile.gettempdir()]
        self.least = {folder: shutil.disk_usage(folder).free for folder in self.folders}
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            for folder in self.folders:
                self.least[folder] = min(self.least[folder], shutil.disk_usage(folder).free)
            time.sleep(1)

    def __str__(self):
        parts = (f"{folder} {free / 1e9:.1f} GB" for folder, free in self.least.items())
        return f"Least free disk space: {', '.join(parts)}"


class Usage:
    """The time that programs take from here on: elapsed, and of processors."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        """The clock, and the processor time of all programs that have ended, theirs included."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.monotonic(), children.ru_utime + children.ru_stime

    def __str__(self):
        elapsed, processors = (now - before for now, before in zip(self.now(), self.begin))
        count = len(os.sched_getaffinity(0))
        part = processors / max(elapsed, 0.001) / count
        return f"{elapsed:.0f} s, with {processors:.0f} s of processor time: {part:.0%} of {count} processors"


def main():
    parser = argparse.ArgumentParser(description="Builds and runs the tests of the workspace.")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("ROCKERY_TEST_JOBS", "2")),
                        help="test programs that run at the same time (ROCKERY_TEST_JOBS; 2)")
    parser.add_argument("--package", "-p", action="append", default=[], help="only this package's tests")
    parser.add_argument("--strict", action="store_true", default=os.environ.get("ROCKERY_TEST_STRICT") == "1",
                        help="a test that passes only when run again fails the run (ROCKERY_TEST_STRICT=1)")
    parser.add_argument("filter", nargs="*", help="passed to every test program, like `cargo test -- FILTER`")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("--jobs: at least 1")

    cargo = os.environ.get("CARGO", "cargo")
    selected = [word for package in options.package for word in ("-p", package)] or ["--workspace"]
    files_before = changed_files()
    free = FreeSpace()
    building = Usage()
    programs = built(cargo, selected, options.filter)
    build_usage = str(building)
    try:
        before = json.loads(SECONDS.read_text())
    except (OSError, ValueError):
        before = json.loads(USUAL_SECONDS.read_text())
    # A program that has never run starts first: how long it takes is not known.
    programs.sort(key=lambda p: -before.get(p.label, 1e9))

    failed, flaky, to_repeat, took = [], [], [], {}
    running = Usage()
    for program, (succeeded, seconds, output) in run_all(programs, options.filter, options.jobs):
        took[program.label] = round(seconds, 1)
        print(f"\n=== {program.label} ({seconds:.1f} s)\n{output}", flush=True)
        if not succeeded:
            to_repeat.append((program, output))
    run_usage = str(running)
    for program, output in to_repeat:
        succeeded, names = run_again(program, output, options.filter)
        (flaky if succeeded else failed).append(f"{program.label}: {', '.join(names) or 'the program'}")
    doctests = subprocess.run([cargo, "test", "--doc", "--no-fail-fast", *selected], cwd=ROOT)
    if doctests.returncode != 0:
        failed.append("documentation tests")
    left = sorted(changed_files() - files_before)
    if left:
        failed.append(f"files of the checkout changed during the run: {', '.join(left)}")

    print("\nSeconds by test program:")
    for name, seconds in sorted(took.items(), key=lambda item: -item[1])[:20]:
        print(f"{seconds:8.1f}  {name}")
    if not options.filter:
        SECONDS.write_text(json.dumps({**before, **took}, indent=1, sort_keys=True))
    print(f"Building: {build_usage}. Tests: {run_usage}.")
    print(free)
    for name in sorted(flaky):
        print(f"flaky: {name} failed, and passed when run again")
    if options.strict:
        failed += flaky
    if failed:
        sys.exit("failed: " + "; ".join(sorted(failed)))
    print(f"all {len(took)} test programs passed")


if __name__ == "__main__":
    main()
