"""odd_frames.py SECONDS: sends frames of every length from 0 to 64 bytes and some longer ones from eth0, with
each type of frame that a lab knows, its own and other source addresses, and random bytes behind them. Prints
how many frames the kernel has taken."""

import random
import socket
import sys
import time

random.seed(34)
OWN, OTHER, SERVER = (bytes([2, 0, 0, 0, 0, last]) for last in (2, 3, 1))
LLDP = bytes([1, 0x80, 0xC2, 0, 0, 0x0E])
TYPES = [0x0800, 0x86DD, 0x0806, 0x8100, 0x88A8, 0x88CC, 0x8808, 0, 46, 0xFFFF]


def frame(length, kind):
    """A frame cut at a length."""
    to = random.choice([SERVER, OTHER, LLDP, b"\xff" * 6])
    head = to + random.choice([OWN, OTHER]) + kind.to_bytes(2, "big")
    body = bytearray(random.randbytes(max(length, 64)))
    body[0] = random.choice([0x45, 0x4F, 0x60, 0x05, body[0]])
    body[9] = random.choice([6, 17, 2, 1, 58, body[9]])
    return (head + body)[:length]


end = time.monotonic() + float(sys.argv[1])
taken = 0
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(("eth0", 0))
    while time.monotonic() < end:
        for length in [*range(65), 1500, 1514]:
            for kind in TYPES:
                try:
                    raw.send(frame(length, kind))
                    taken += 1
                except OSError:
                    pass
print("sent", taken, "frames")
