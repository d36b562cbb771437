"""Mooncake from PyPI: its transfer engine's benchmark, and a value in its store."""

import re
import stat

from harness import ADDRESS, DEVICE


def install(application):
    application.pip("mooncake-transfer-engine-non-cuda", dependencies=False)
    application.pip("numpy", "requests", "aiohttp")
    application.apt("libnuma1", "libcurl4")


def package(application):
    return next(application.folder.glob("venv/lib/python3*/site-packages/mooncake"))


def run(application):
    bench = package(application) / "transfer_engine_bench"
    bench.chmod(bench.stat().st_mode | stat.S_IXUSR)
    common = [
        bench,
        "--metadata_server=P2PHANDSHAKE",
        "--protocol=rdma",
        f"--device_name={DEVICE}",
        "--buffer_size=67108864",
        "--block_size=65536",
        "--batch_size=16",
        "--threads=1",
    ]
    target = application.on_rockery(*common, "--mode=target", f"--local_server_name={ADDRESS}:12345")
    said = application.wait_for(target, f"listening on {ADDRESS}:")
    port = re.search(rf"listening on {re.escape(ADDRESS)}:(\d+)", said)[1]
    rates = []
    for operation in ("read", "write"):
        # The target listens before it has registered memory, and the benchmark fails without a segment.
        said = application.succeeds_once_ready(
            lambda: application.on_rockery(
                *common,
                "--mode=initiator",
                f"--local_server_name={ADDRESS}:12346",
                f"--segment_id={ADDRESS}:{port}",
                f"--operation={operation}",
                "--duration=3",
            ),
            "throughput",
        )
        rate = re.search(r"throughput ([\d.]+) GB/s", said)[1]
        rates.append(f"{operation} {rate} GB/s")
    master = application.start(package(application) / "mooncake_master", "--port", "50051")
    application.wait_for_port(master, 50051)
    script = application.client("mooncake_store.py")
    holder = application.on_rockery(application.python, "-u", script, f"{ADDRESS}:17001", DEVICE, "hold")
    application.wait_for(holder, "holds")
    user = application.on_rockery(application.python, "-u", script, f"{ADDRESS}:17002", DEVICE, "use")
    application.succeeds(user, "equal")
    return f"benchmark {', '.join(rates)}; a value of 1 MiB put and got, equal"
