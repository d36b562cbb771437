#!/usr/bin/python3
"""The runs of a fabric file's sweep, on this machine's cores or on a Dask cluster: one result each.

  sweep.py FILE --out DIR                              on this machine's cores
  sweep.py FILE --out DIR --on dask                    on a Dask cluster that it starts here, and ends
  sweep.py FILE --out DIR --on dask --scheduler tcp://head:8786    on one that runs already

Each run is a process of its own, `rockery sim FILE --point N --json`, and a function of the file and N
alone, so DIR/N.json is the same wherever it was made. What is in DIR already is not made again. Workers need
`rockery` and FILE at the same paths, as clusters with a shared file system have them; nothing else is sent.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="a fabric file with a [sweep]")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for results")
    parser.add_argument("--on", choices=["cores", "dask"], default="cores")
    parser.add_argument("--scheduler", help="address of a Dask scheduler; without, one is started here")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=cores, help="runs at a time here")
    parser.add_argument("--rockery", default="rockery", help="the program, as workers find it")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="as for rockery sim")
    return parser.parse_args()


def call(argv):
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def base(options):
    sets = [word for setting in options.set for word in ("--set", setting)]
    return [options.rockery, "sim", str(options.file.resolve()), *sets]


def points_of(options):
    """The numbers of the runs. A folder is never used for two different sweeps."""
    points = call([*base(options), "--points"])
    options.out.mkdir(parents=True, exist_ok=True)
    known = options.out / "points.tsv"
    if known.exists() and known.read_bytes() != points:
        sys.exit(f"{options.out} holds results of another sweep: choose another folder for --out")
    known.write_bytes(points)
    return range(len(points.splitlines()))


def keep(options, number, result):
    """Writes a result, whole or not at all."""
    partial = options.out / f"{number}.part"
    partial.write_bytes(result)
    partial.rename(options.out / f"{number}.json")


def on_cores(options, commands):
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        running = {pool.submit(call, command): number for number, command in commands.items()}
        for done in concurrent.futures.as_completed(running):
            yield running[done], done.result()


def on_dask(options, commands):
    try:
        import distributed
    except ImportError:
        sys.exit("Dask is not installed: apt-get install python3-distributed, or pip install distributed")
    local = {"n_workers": options.workers, "threads_per_worker": 1,
             "host": "127.0.0.1", "dashboard_address": None}
    where = {"address": options.scheduler} if options.scheduler else local
    with distributed.Client(**where) as client:
        # A run repeats exactly, so one that was lost with its worker may be made again by another.
        running = {client.submit(call, command, pure=False, retries=2): number
                   for number, command in commands.items()}
        for done in distributed.as_completed(list(running)):
            yield running[done], done.result()


def main():
    options = arguments()
    engine = on_dask if options.on == "dask" else on_cores
    try:
        missing = [n for n in points_of(options) if not (options.out / f"{n}.json").exists()]
        commands = {n: [*base(options), "--point", str(n), "--threads", "1", "--json"] for n in missing}
        for count, (number, result) in enumerate(engine(options, commands), 1):
            keep(options, number, result)
            print(f"{count} of {len(missing)}: {options.out / f'{number}.json'}", flush=True)
    except (RuntimeError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
