"""DLSlime's RDMA endpoints (PyPI): a READ and a WRITE of 8 MiB between two processes."""

from harness import DEVICE


def install(application):
    application.pip("dlslime==0.1.23")


def run(application):
    pair = application.on_rockery(application.python, application.client("dlslime_pair.py"), DEVICE)
    return application.succeeds(pair, "bytes came back").strip().splitlines()[-1]
