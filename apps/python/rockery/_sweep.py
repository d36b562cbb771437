"""All runs of a sweep, on threads, Dask or Ray."""

import concurrent.futures
import os
import pathlib

from ._rockery import Report, Stop, tables_of
from ._source import document, fields_of

ENGINES = ("threads", "dask", "ray")


class Sweep:
    """The reports of a sweep, in the order of its points: a sequence of `Report`.

    The tables ``collectives``, ``flows``, ``hops``, ``ports``, ``samples``, ``switches`` and ``workloads``
    have the rows of all runs; the column ``run`` is the number of the run, and each field that the sweep
    sets is a column.
    """

    def __init__(self, reports):
        self.reports = list(reports)

    def __len__(self):
        return len(self.reports)

    def __getitem__(self, index):
        return self.reports[index]

    def __iter__(self):
        return iter(self.reports)

    def __repr__(self):
        return f"<rockery.Sweep: {len(self)} runs>"

    def _repr_html_(self):
        return self.workloads._repr_html_()

    def json(self):
        """The reports as JSON, as ``rockery sim --json`` writes them: one document after the other."""
        return "".join(report.json() + "\n" for report in self.reports)

    def _table(kind, rows):  # pylint: disable=no-self-argument
        return property(lambda self: tables_of(kind, self.reports), doc=f"One row for each run and {rows}.")

    collectives = _table("collectives", "collective")
    flows = _table("flows", "queue pair")
    hops = _table("hops", "queue pair and port on its path")
    ports = _table("ports", "port")
    samples = _table("samples", "port and moment")
    switches = _table("switches", "switch")
    workloads = _table("workloads", "workload")
    del _table


def _remote(source, settings, seed, point, sample, hops):
    """One run, in a worker process of Dask or Ray: a function of its arguments. JSON keeps every number."""
    made = document(source, settings, seed)
    return made.run(point, sample=sample, hops=hops, threads=1, stop=None).json()


class _Folder:
    """Where results are kept, so that a sweep that was stopped can go on: run N is in N.json."""

    def __init__(self, path, identity):
        self.path = path
        if path is None:
            return
        path.mkdir(parents=True, exist_ok=True)
        known = path / "sweep.txt"
        if known.exists() and known.read_text(encoding="utf-8") != identity:
            raise ValueError(f"{path} has the results of another sweep: choose another folder")
        known.write_text(identity, encoding="utf-8")

    def load(self, number):
        file = self.path and self.path / f"{number}.json"
        if not file or not file.exists():
            return None
        return Report.from_json(file.read_text(encoding="utf-8"))

    def save(self, number, report):
        if self.path is None:
            return
        # Whole or not at all, with the bytes of `rockery sim --point N --json`.
        partial = self.path / f"{number}.part"
        partial.write_text(report.json() + "\n", encoding="utf-8")
        partial.replace(self.path / f"{number}.json")


def _on_threads(made, missing, options, workers, _call, _client):
    stop = Stop()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(made.run, number, threads=1, stop=stop, **options): number
                   for number in missing}
        try:
            for done in concurrent.futures.as_completed(running):
                yield running[done], done.result()
        finally:
            # After Ctrl-C or an error in one run the others end soon, and those that wait never begin.
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _on_dask(_made, missing, _options, workers, call, client):
    try:
        import distributed
    except ImportError as error:
        raise ImportError("Dask is not installed: pip install 'rockery[dask]'") from error
    own = None
    if client is None:
        own = client = distributed.Client(n_workers=workers, threads_per_worker=1, host="127.0.0.1",
                                          dashboard_address=None)
    try:
        # A run repeats exactly, so that one whose worker was lost may be made again by another.
        running = {client.submit(_remote, *call(number), pure=False, retries=2): number
                   for number in missing}
        for done in distributed.as_completed(list(running)):
            yield running[done], Report.from_json(done.result())
    finally:
        if own is not None:
            own.close()


def _on_ray(_made, missing, _options, workers, call, _client):
    try:
        import ray
    except ImportError as error:
        raise ImportError("Ray is not installed: pip install 'rockery[ray]'") from error
    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(_remote).options(max_retries=2)
    running = {remote.remote(*call(number)): number for number in missing}
    while running:
        done, _ = ray.wait(list(running), num_returns=1)
        for result in done:
            yield running.pop(result), Report.from_json(ray.get(result))


def sweep(source, *, settings=None, seed=None, sample=None, hops=False, engine="threads", workers=None,
          folder=None, client=None, progress=None):
    """Runs every combination of the values of a file's ``[sweep]``.

    Each run is a function of the file and its number, so that every engine gives the same reports. Ctrl-C
    ends the sweep; with a folder, the next call makes only the runs that are missing.

    :param source: as for `sim`. Workers of Dask and Ray read files at the same paths
    :param settings: as for `sim`
    :param seed: as for `sim`
    :param sample: as for `sim`
    :param hops: as for `sim`
    :param engine: ``"threads"``, ``"dask"`` or ``"ray"``
    :param workers: runs at a time on this machine; by default one for each processor
    :param folder: where ``N.json`` is written for run N, with the bytes of
        ``rockery sim --point N --json``; what is there is not made again
    :param client: a ``distributed.Client``; without one, Dask is started on this machine
    :param progress: called with the number of runs that are complete and the number of all runs
    :rtype: Sweep

    >>> import rockery
    >>> result = rockery.sweep({
    ...     "topology": {"kind": "star", "hosts": 2},
    ...     "workload": [{"pattern": "each", "from": ["h1"], "to": ["h0"], "messages": 1}],
    ...     "sweep": {"nic.default.mtu": [1024, 4096]},
    ... })
    >>> result.flows["nic.default.mtu"]
    ['1024', '4096']
    """
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r}: there are {', '.join(ENGINES)}")
    made = document(source, settings, seed)
    fields = fields_of(source)
    if fields is None and not (isinstance(source, str) and "\n" in source):
        source = os.path.abspath(os.fspath(source))
    elif fields is not None:
        source = dict(fields)
    numbers = range(len(made.points))
    identity = "".join("\t".join(f"{path}={value}" for path, value in point) + "\n"
                       for point in made.points)
    kept = _Folder(pathlib.Path(folder) if folder is not None else None,
                   f"{settings!r} seed={seed} sample={sample} hops={hops}\n{identity}")
    reports = {number: report for number in numbers if (report := kept.load(number)) is not None}
    missing = [number for number in numbers if number not in reports]
    workers = workers or len(os.sched_getaffinity(0))
    engines = {"threads": _on_threads, "dask": _on_dask, "ray": _on_ray}
    results = engines[engine](made, missing, {"sample": sample, "hops": hops}, workers,
                              lambda number: (source, settings, seed, number, sample, hops), client)
    try:
        for number, report in results if missing else ():
            kept.save(number, report)
            reports[number] = report
            if progress is not None:
                progress(len(reports), len(numbers))
    finally:
        results.close()
    return Sweep(reports[number] for number in numbers)
