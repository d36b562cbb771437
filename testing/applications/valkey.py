"""Valkey over RDMA, from the source package of Debian 13 (Debian's binary has no RDMA): its own RDMA test."""

import os
import subprocess

from harness import ADDRESS


def install(application):
    application.apt("build-essential", "pkg-config", "librdmacm-dev", "libibverbs-dev", "dpkg-dev")
    source = application.debian_source("valkey", "trixie")
    jobs = f"-j{os.cpu_count()}"
    for folder, words in (
        ("src", ["BUILD_RDMA=yes", "MALLOC=libc", "USE_SYSTEMD=no", "OPTIMIZATION=-O1", "valkey-server"]),
        ("tests/rdma", []),
    ):
        with (application.folder / "make.log").open("ab") as log:
            subprocess.run(["make", "-C", source / folder, jobs, *words], check=True, stdout=log, stderr=log)


def run(application):
    source = application.folder / "valkey"
    server = application.on_rockery(
        source / "src/valkey-server",
        "--port",
        "0",
        "--save",
        "",
        "--rdma-port",
        "6379",
        "--rdma-bind",
        ADDRESS,
        "--protected-mode",
        "no",
    )
    application.wait_for(server, "Ready to accept connections")
    test = application.on_rockery(
        source / "tests/rdma/rdma-test", "--thread", "4", "--host", ADDRESS, "--port", "6379"
    )
    application.succeeds(test)
    return "its rdma-test with four threads passes"
