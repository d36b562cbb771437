"""mooncake_store.py ADDRESS:PORT DEVICE hold | use: lends memory to the store, or puts and gets a value."""

import os
import sys
import time

from mooncake.store import MooncakeDistributedStore

name, device, role = sys.argv[1:]
master = f"{name.rsplit(':', 1)[0]}:50051"
store = MooncakeDistributedStore()
assert store.setup(name, "P2PHANDSHAKE", 64 << 20, 32 << 20, "rdma", device, master) == 0, "setup"
if role == "hold":
    print("holds")
    time.sleep(600)
value = os.urandom(1 << 20)
assert store.put("key", value) == 0, "put"
assert store.get("key") == value, "the value differs"
print("equal")
store.close()
