"""`nvmeof` from PyPI, an NVMe over RDMA host in Python, on `rockery serve nvme`."""

import os

from harness import ADDRESS

NQN = "nqn.2024-01.org.example:disk"


def install(application):
    application.pip("ibverbs", "nvmeof")


def run(application):
    disk = application.folder / "disk.img"
    disk.unlink(missing_ok=True)
    target = application.start(
        application.rockery,
        "serve",
        "nvme",
        disk,
        "--size",
        "64MiB",
        "--rdma",
        f"{ADDRESS}:4420",
        "--subsystem",
        NQN,
        variables={"XDG_RUNTIME_DIR": os.fspath(application.folder)},
    )
    host = application.succeeds_once_ready(
        lambda: application.on_rockery(
            application.python, application.client("nvmeof_host.py"), ADDRESS, NQN
        ),
        "equal",
    )
    assert target.poll() is None, host
    return "an independent NVMe over RDMA host wrote, flushed and read 1 MiB, equal"
