"""``python -m rockery script.py``: runs a script on rockery's devices; ``-m module`` and ``-c text`` too."""

import os
import sys

from ._command import command

USAGE = """\
usage: python -m rockery SCRIPT [ARGUMENT ...]
       python -m rockery -m MODULE | -c TEXT [ARGUMENT ...]

Runs a Python program with rockery's RDMA devices. For options of `rockery run`:
rockery run OPTIONS -- python SCRIPT"""


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    try:
        program = command()
    except FileNotFoundError as error:
        print(f"rockery: {error}", file=sys.stderr)
        return 127
    os.execv(program, [program, "run", "--", sys.executable, *arguments])


if __name__ == "__main__":
    sys.exit(main())
