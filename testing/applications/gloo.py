"""Gloo of Debian, which PyTorch's collectives use: sums and broadcasts over its transport `ibverbs`."""

from harness import DEVICE

RANKS = 3
# That of the IPv4 address: the first one is the link-local address.
GID_INDEX = 1


def install(application):
    application.apt("libgloo-dev", "libibverbs-dev", "g++")
    # Its headers are not free of warnings.
    application.compile("g++", "gloo_allreduce.cc", "-std=c++14", "-w", "-lgloo", "-libverbs", "-lpthread")


def run(application):
    store = application.folder / "store"
    for file in store.glob("*") if store.exists() else []:
        file.unlink()
    store.mkdir(exist_ok=True)
    program = application.folder / "gloo_allreduce"
    ranks = [
        application.on_rockery(program, rank, RANKS, store, DEVICE, GID_INDEX) for rank in range(RANKS)
    ]
    for number, rank in enumerate(ranks):
        application.succeeds(rank, f"rank {number} of {RANKS}: equal")
    return "sums and broadcasts of up to 4 MiB between three processes, equal"
