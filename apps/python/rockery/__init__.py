"""RoCEv2 devices in software, and a simulator of lossless networks.

>>> import rockery
>>> report = rockery.sim({
...     "topology": {"kind": "star", "hosts": 3},
...     "workload": [{"pattern": "each", "from": ["h1", "h2"], "to": ["h0"],
...                   "message": "64KiB", "messages": 4}],
... })
>>> report.flows["bytes"]
[262144, 262144]
>>> report.findings
[]

`sim` runs one experiment, `sweep` all combinations of values. `command` is the path of the command
``rockery``; ``python -m rockery script.py`` runs a script on rockery's devices.
"""

from ._command import command
from ._rockery import FabricError, Finding, Report, Table, __version__
from ._source import sim
from ._sweep import Sweep, sweep

__all__ = ["FabricError", "Finding", "Report", "Sweep", "Table", "command", "load", "sim", "sweep",
           "__version__"]


def load(path):
    """Reads a report that ``rockery sim --json`` or `Report.json` wrote.

    :param path: the file
    :rtype: Report
    """
    with open(path, encoding="utf-8") as file:
        return Report.from_json(file.read())
