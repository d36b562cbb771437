"""All ranks exchange messages of many sizes, and put into each other's windows; every byte is compared."""

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size


def block(source, target, size):
    """What one rank sends to another."""
    return numpy.random.default_rng([source, target, size]).integers(0, 256, size, dtype=numpy.uint8)


for size in (1, 64, 4096, 65536, 1 << 20):
    to_send = numpy.concatenate([block(rank, other, size) for other in range(ranks)])
    received = numpy.zeros_like(to_send)
    for _ in range(5):
        received[:] = 0
        world.Alltoall(to_send, received)
        expected = numpy.concatenate([block(other, rank, size) for other in range(ranks)])
        assert (received == expected).all(), f"alltoall of {size} bytes"

SIZE = 1 << 20
memory = numpy.zeros(SIZE, dtype=numpy.uint8)
window = MPI.Win.Create(memory, comm=world)
# Puts end at the second fence: their data is kept until then.
to_put = block(rank, rank + 1, SIZE)
window.Fence()
window.Put(to_put, (rank + 1) % ranks)
window.Fence()
left = (rank - 1) % ranks
assert (memory == block(left, left + 1, SIZE)).all(), "put"
window.Free()
world.Barrier()
if rank == 0:
    print(f"{ranks} ranks, every byte equal", flush=True)
