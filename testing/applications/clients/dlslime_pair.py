"""DLSlime's RDMA endpoints in two processes: one READs the other's memory, and WRITEs it back elsewhere.

dlslime_pair.py DEVICE: starts itself again as the other end, which it speaks to by pipes.
"""

import ctypes
import json
import os
import subprocess
import sys

import dlslime

BYTES = 8 << 20
# The second half of the memory is for what comes back.
memory = ctypes.create_string_buffer(2 * BYTES)


def endpoint():
    made = dlslime.RDMAEndpoint(device_name=sys.argv[1], num_qp=2)
    made.register_memory_region("memory", ctypes.addressof(memory), 0, len(memory))
    return made


def tell(stream, document):
    stream.write(json.dumps(document) + "\n")
    stream.flush()


def described(end):
    return {"end": end.endpoint_info(), "memory": end.mr_info()["memory"]}


def other_end():
    ctypes.memmove(memory, os.urandom(BYTES), BYTES)
    end = endpoint()
    tell(sys.stdout, described(end))
    end.connect(json.loads(sys.stdin.readline())["end"])
    tell(sys.stdout, "connected")
    sys.stdin.readline()
    tell(sys.stdout, memory.raw[:BYTES] == memory.raw[BYTES:])


def main():
    with subprocess.Popen(
        [sys.executable, __file__, *sys.argv[1:], "other"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        end = endpoint()
        remote = json.loads(other.stdout.readline())
        tell(other.stdin, described(end))
        end.connect(remote["end"])
        other.stdout.readline()
        theirs = end.register_remote_memory_region("theirs", remote["memory"])
        own = end.register_memory_region("memory", ctypes.addressof(memory), 0, len(memory))
        # The handles, the offsets of the other end's bytes and of these, and their number.
        end.read([(own, theirs, 0, 0, BYTES)]).wait()
        end.write([(own, theirs, BYTES, 0, BYTES)]).wait()
        tell(other.stdin, "done")
        if not json.loads(other.stdout.readline()):
            sys.exit("what came back is not what was read")
    print(f"{BYTES} bytes came back")


if __name__ == "__main__":
    other_end() if sys.argv[2:] == ["other"] else main()
