#!/usr/bin/env python3
"""Runs applications that people use over RDMA on rockery, unmodified, and checks what they transfer.

python3 testing/applications [NAME…]: all, or these. Each is installed below target/applications (Python
packages from PyPI, others by apt), and then run in a network namespace whose interface net0 is the only
network. The environment variable ROCKERY names the command (target/release/rockery). The exit status is 1 if
one fails. One that needs hardware that is not there is named as not run.
"""

import argparse
import importlib
import os
import subprocess
import sys
import time

from harness import ADDRESS, INTERFACE, Application, Failure, NotHere

# Modules of this folder, each with `install(application)` and `run(application)`, which returns what it did.
NAMES = [
    "nixl",
    "mooncake",
    "mpi",
    "openshmem",
    "nvmeof",
    "iser",
    "infinistore",
    "peercache",
    "dlslime",
    "tensorpipe",
    "gloo",
    "ceph",
    "llama",
    "nccl",
    "qemu",
    "valkey",
]


def inside(names):
    """Runs the applications in this network namespace."""
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", "net1"],
        ["ip", "address", "add", f"{ADDRESS}/24", "dev", INTERFACE],
        ["ip", "link", "set", INTERFACE, "up"],
        ["ip", "link", "set", "net1", "up"],
    ):
        subprocess.run(command, check=True)
    # Link-local addresses are usable once the kernel has found that no other host has them.
    time.sleep(2)
    failed = []
    for name in names:
        application = Application(name)
        begin = time.monotonic()
        try:
            done = importlib.import_module(name).run(application)
            print(f"{name:12} ok      {time.monotonic() - begin:5.1f} s  {done}", flush=True)
        except Failure as failure:
            failed.append(name)
            print(f"{name:12} FAILED  {time.monotonic() - begin:5.1f} s  {failure}", flush=True)
        finally:
            application.end()
    return failed


def main():
    parser = argparse.ArgumentParser(prog="testing/applications", description=__doc__.splitlines()[0])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(NAMES)}; all if none is given")
    options = parser.parse_args()
    names = options.name or NAMES
    for name in names:
        if name not in NAMES:
            parser.error(f"{name} is not one of {', '.join(NAMES)}")
    if options.inside:
        failed = inside(names)
        sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
    installed = []
    for name in names:
        try:
            importlib.import_module(name).install(Application(name))
            installed.append(name)
        except NotHere as reason:
            print(f"{name:12} not run: {reason}", flush=True)
    if not installed:
        sys.exit(1 if options.name else 0)
    folder = os.path.dirname(__file__) or "."
    command = ["unshare", "--net", sys.executable, "-B", folder, "--inside", *installed]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
