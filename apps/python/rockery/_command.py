"""The command `rockery`, which the package brings along."""

import os
import pathlib
import shutil
import sys
import sysconfig


def command():
    """The path of the command ``rockery``.

    It is the one that was installed with this package, else the one in PATH. The variable ``ROCKERY_COMMAND``
    names another one.

    :raises FileNotFoundError: there is none
    :rtype: str
    """
    named = os.environ.get("ROCKERY_COMMAND")
    if named:
        return named
    # The package's folder is lib/pythonX.Y/site-packages/rockery, below the folder with bin.
    prefixes = [sysconfig.get_path("scripts"), os.path.join(sys.prefix, "bin")]
    prefixes += [str(parent / "bin") for parent in list(pathlib.Path(__file__).resolve().parents)[1:5]]
    for prefix in prefixes:
        found = os.path.join(prefix, "rockery")
        if os.access(found, os.X_OK) and os.path.isdir(os.path.join(prefix, "../lib/rockery")):
            return found
    found = shutil.which("rockery")
    if found is None:
        raise FileNotFoundError("no command rockery beside this package or in PATH: install the wheel of "
                                "this package, or name the command in ROCKERY_COMMAND")
    return found
