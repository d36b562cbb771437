"""OpenSHMEM of Debian's OpenMPI over UCX: atomics, puts and fences between three processes."""

from harness import DEVICE


def install(application):
    application.apt("libopenmpi-dev", "openmpi-bin")
    application.compile("oshcc", "openshmem_put.c")


def run(application):
    ranks = application.on_rockery(
        "oshrun",
        "--allow-run-as-root",
        "-np",
        "3",
        "--oversubscribe",
        "--mca",
        "spml",
        "ucx",
        "--mca",
        "pml",
        "ucx",
        "--mca",
        "btl",
        "^openib,ofi",
        "-x",
        "UCX_TLS=rc,self",
        "-x",
        f"UCX_NET_DEVICES={DEVICE}:1",
        "-x",
        "SHMEM_SYMMETRIC_SIZE=16M",
        application.folder / "openshmem_put",
    )
    # OpenMPI 4.1.4 ends with a segmentation fault in shmem_finalize, over TCP without rockery too.
    until_end = application.wait_for_all(
        ranks, [f"process {rank} of 3: equal, counter 300" for rank in range(3)]
    )
    assert "DIFFERS" not in until_end, until_end
    return "300 atomic additions and puts of 64 KiB between three processes, equal"
