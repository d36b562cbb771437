"""scribbler.py SEED [SECONDS]: attaches to a lab as a device does, and writes random bytes over the memory
that it gets, again and again; then floods the socket of the lab with messages that are none."""

import array
import mmap
import os
import random
import socket
import struct
import sys
import time

# The version of the lab's protocol with devices (core/link/src/lab.rs).
VERSION = 3

random.seed(int(sys.argv[1]))


def attach():
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.connect('\0rockery-lab')
    return end


end_of_it = time.monotonic() + float(sys.argv[2]) if len(sys.argv) > 2 else 0
attempt = 0
while attempt < 60 or time.monotonic() < end_of_it:
    attempt += 1
    end = attach()
    end.send(struct.pack('<III', VERSION, 0x4000, 0x4000))
    _, ancillary, _, _ = end.recvmsg(128, socket.CMSG_SPACE(16 * 4))
    fds = array.array('i')
    for _, _, bytes_of in ancillary:
        fds.frombytes(bytes_of[:len(bytes_of) // 4 * 4])
    assert len(fds) == 5, fds
    for fd in fds:
        for length in (0, 4096, 1 << 40):
            try:
                os.ftruncate(fd, length)
            except OSError:
                pass
    for fd in fds:
        size = os.fstat(fd).st_size
        with mmap.mmap(fd, size) as memory:
            for _ in range(200):
                if random.random() < 0.5:
                    at = random.randrange(0, 4096, 4)
                else:
                    at = random.randrange(0, size - 8, 4)
                memory[at:at + 8] = random.randbytes(8) if random.random() < 0.7 else b'\xff' * 8
            if attempt % 3 == 0:
                memory[:] = random.randbytes(size)
        os.close(fd)
    try:
        for _ in range(20):
            end.send(b'\0')
        end.send(random.randbytes(12))
    except OSError:
        pass
    end.close()
print('scribbled over', attempt, 'devices')
