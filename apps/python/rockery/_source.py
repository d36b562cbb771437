"""Where a fabric comes from: a file, a text, a dictionary or an object."""

import dataclasses
import os

from . import _toml
from ._rockery import Document


def _settings(settings, seed):
    """Pairs of path and text, as the command's ``--set`` has them."""
    pairs = []
    for path, item in dict(settings or {}).items():
        pairs.append((str(path), item if isinstance(item, str) else _toml.value(item)))
    if seed is not None:
        pairs.append(("seed", str(seed)))
    return pairs


def fields_of(source):
    """The fields of a dictionary or of an object; None for a file or a text."""
    if isinstance(source, (str, os.PathLike)):
        return None
    if hasattr(source, "keys"):
        return source
    if dataclasses.is_dataclass(source) and not isinstance(source, type):
        return dataclasses.asdict(source)
    for method in ("model_dump", "to_dict"):
        if hasattr(source, method):
            return getattr(source, method)()
    raise TypeError("a fabric is a path, a text in TOML, a dictionary, a data class or an object with "
                    f"to_dict(), not {type(source).__name__}")


def document(source, settings=None, seed=None):
    """The document of a source, with settings."""
    pairs = _settings(settings, seed)
    fields = fields_of(source)
    if fields is not None:
        return Document.parse("<dict>", _toml.document(fields), os.getcwd(), pairs)
    if isinstance(source, str) and "\n" in source:
        return Document.parse("<text>", source, os.getcwd(), pairs)
    return Document.read(os.fspath(source), pairs)


def sim(source, *, settings=None, seed=None, sample=None, hops=False, threads=1, point=None):
    """Runs one experiment in virtual time. The same source and seed give the same report.

    Other Python threads run meanwhile; Ctrl-C ends the run with KeyboardInterrupt.

    :param source: the path of a fabric file; its text (with a line break in it), whose includes are looked
        for in the working directory; a dictionary with its fields; a data class; or an object with
        ``to_dict()`` or ``model_dump()``
    :param settings: fields of the file and their values, instead of the file's:
        ``{"nic.default.mtu": 1024, "workload.*.depth": 16}``
    :param seed: seed of all random numbers, instead of the file's
    :param sample: interval with a unit, such as ``"20us"``, at which ``Report.samples`` has queues and rates
    :param hops: whether ``Report.hops`` has what became of each queue pair's data at each port
    :param threads: number of threads, 1 to 64; the results are the same with any number
    :param point: number of the one run of a sweep to make, from 0; needed where the file has a ``[sweep]``
    :raises FabricError: mistakes in the file, with their lines
    :raises OSError: a file that cannot be read
    :rtype: Report

    >>> import rockery
    >>> fabric = {"topology": {"kind": "star", "hosts": 2},
    ...           "workload": [{"pattern": "each", "from": ["h1"], "to": ["h0"], "messages": 1}]}
    >>> rockery.sim(fabric, seed=7).seed
    7
    >>> rockery.sim({"topolgy": {}})
    Traceback (most recent call last):
        ...
    rockery.FabricError: <dict>:1:1: topolgy: there is no field "topolgy" here
      1 | topolgy = {}
        | ^^^^^^^
      did you mean "topology"?
    """
    made = document(source, settings, seed)
    if point is None:
        if len(made.points) != 1:
            raise ValueError(f"the file has a sweep of {len(made.points)} runs: call rockery.sweep, "
                             "or give point=")
        point = 0
    return made.run(point, sample=sample, hops=hops, threads=threads, stop=None)
