"""intruder.py SECONDS: connects to all sockets of rockery's agent and devices, again and again, sends random
messages with descriptors, and keeps up to 200 connections open. Prints how many connections it has made."""

import array
import os
import random
import socket
import sys
import time

KEPT = 200
random.seed(34)


def names():
    """The abstract names of rockery's sockets that programs listen on."""
    with open("/proc/net/unix") as table:
        found = {line.split()[-1] for line in table if "@rockery" in line}
    return sorted("\0" + name[1:] for name in found)


def message():
    """Random bytes, some of which begin as a small number in each byte order does."""
    body = bytearray(random.randbytes(random.choice([0, 1, 4, 12, 64, 4096])))
    if len(body) >= 4 and random.random() < 0.7:
        body[:4] = random.randrange(16).to_bytes(4, random.choice(["big", "little"]))
    return bytes(body)


end = time.monotonic() + float(sys.argv[1])
made, kept = 0, []
null = os.open("/dev/null", os.O_RDONLY)
print("intrudes", flush=True)
while time.monotonic() < end:
    for name in names():
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.setblocking(False)
        try:
            client.connect(name)
            made += 1
            fds = array.array("i", [null] * random.randrange(4))
            client.sendmsg([message()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            client.send(message())
        except OSError:
            pass
        kept.append(client)
    for old in kept[:-KEPT]:
        old.close()
    kept = kept[-KEPT:]
print("made", made)
