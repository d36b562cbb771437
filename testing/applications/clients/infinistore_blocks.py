"""infinistore_blocks.py DEVICE ADDRESS: writes 32 blocks to the store, reads them again and compares."""

import asyncio
import sys

import infinistore
import numpy

BLOCK, BLOCKS = 32768, 32

device, address = sys.argv[1:]
connection = infinistore.InfinityConnection(
    infinistore.ClientConfig(
        host_addr=address,
        service_port=22345,
        dev_name=device,
        link_type="Ethernet",
        ib_port=1,
        log_level="warning",
        connection_type=infinistore.TYPE_RDMA,
    )
)
connection.connect()
written = numpy.random.default_rng(17).integers(0, 256, BLOCK * BLOCKS, dtype=numpy.uint8)
read = numpy.zeros_like(written)
for memory in (written, read):
    connection.register_mr(memory.ctypes.data, memory.nbytes)
blocks = [(f"key-{index}", index * BLOCK) for index in range(BLOCKS)]


async def exchange():
    await connection.rdma_write_cache_async(blocks, BLOCK, written.ctypes.data)
    await connection.rdma_read_cache_async(blocks, BLOCK, read.ctypes.data)


asyncio.run(exchange())
assert (written == read).all(), "the bytes that were read differ"
connection.close()
print("equal")
