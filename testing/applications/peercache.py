"""PeerCache from PyPI: its benchmark over RDMA, which compares what it reads."""

from harness import DEVICE


def install(application):
    application.pip("peercache")


def run(application):
    bench = application.on_rockery(
        application.installed("peercache-bench"), "micro", "--protocol", "rdma", "--device-name", DEVICE
    )
    said = application.succeeds(bench)
    return said.strip().splitlines()[-1]
