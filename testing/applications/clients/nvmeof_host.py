"""nvmeof_host.py ADDRESS NQN: writes 1 MiB to namespace 1, flushes, reads it again and compares."""

import os
import sys

import nvmeof

address, nqn = sys.argv[1:]
with nvmeof.Controller.connect(address, nqn, source=address) as controller:
    namespace = controller.namespace(1)
    blocks = (1 << 20) // namespace.lba_size
    with controller.allocate(1 << 20) as buffer:
        data = os.urandom(1 << 20)
        # Not all at once: a command has at most the target's MDTS.
        for first in range(0, blocks, 256):
            count = min(256, blocks - first)
            begin, end = first * namespace.lba_size, (first + count) * namespace.lba_size
            buffer.write(data[begin:end])
            namespace.write(buffer, slba=8 + first, blocks=count)
        namespace.flush()
        read = bytearray()
        for first in range(0, blocks, 256):
            count = min(256, blocks - first)
            buffer.write(bytes(count * namespace.lba_size))
            namespace.read(buffer, slba=8 + first, blocks=count)
            read += bytes(buffer.read())[: count * namespace.lba_size]
        assert bytes(read) == data, "the bytes that were read differ"
        print("equal")
