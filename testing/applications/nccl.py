"""NCCL over its transport for verbs, by PyTorch: collectives of four processes that share one NVIDIA GPU."""

import pathlib
import subprocess
import sys

from harness import ADDRESS, DEVICE, INTERFACE, NotHere

RANKS = 4
PORT = 29555
# NCCL takes ranks for those of different hosts by this name, and refuses two ranks of one host on one GPU.
HOST = "NCCL_HOSTID"
VARIABLES = {
    "WORLD_SIZE": str(RANKS),
    "STORE": f"tcp://{ADDRESS}:{PORT}",
    "NCCL_NET": "IB",
    "NCCL_IB_HCA": DEVICE,
    "NCCL_SOCKET_IFNAME": INTERFACE,
    "NCCL_DEBUG": "INFO",
    # Without this NCCL 2.28 ends with a segmentation fault on adapters of others (NVIDIA/nccl#1881).
    "NCCL_GIN_TYPE": "0",
}
USED = f"NET/IB : Using [0]{DEVICE}:1/RoCE"
EQUAL = "rank {} of {}: equal"


def has_pytorch(python):
    command = [python, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(command, capture_output=True).returncode == 0


def install(application):
    if not pathlib.Path("/dev/nvidiactl").exists():
        raise NotHere("it needs an NVIDIA GPU")
    # PyTorch has 3 GB: that of the machine is used where it has one.
    if not has_pytorch(sys.executable):
        application.pip("torch", "numpy")


def run(application):
    python = sys.executable if has_pytorch(sys.executable) else application.python
    ways = {
        "shared memory": (),
        "packets, of which one in a thousand is lost": (
            "--fault",
            "packet: drop probability 1/1000 seed 1",
        ),
    }
    for options in ways.values():
        ranks = [
            application.on_rockery(
                python,
                application.client("nccl_ranks.py"),
                variables=VARIABLES | {"RANK": str(rank), HOST: f"host{rank}"},
                options=options,
            )
            for rank in range(RANKS)
        ]
        for number, rank in enumerate(ranks):
            application.succeeds(rank, USED, EQUAL.format(number, RANKS))
    over = " and ".join(ways)
    return f"all-reduce, all-gather and all-to-all of {RANKS} processes up to 16 MiB, equal over {over}"
