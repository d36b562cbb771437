"""nixl_agent.py target | initiator ADDRESS: the initiator reads the target's memory and compares it."""

import sys
import time

import numpy
from nixl_cu12 import nixl_agent, nixl_agent_config

BYTES, PORT, TIMES = 8 << 20, 5555, 5
# The target's memory, and the same in the initiator to compare with.
EXPECTED = numpy.random.default_rng(17).integers(0, 256, BYTES, dtype=numpy.uint8)


def until(condition):
    while not (value := condition()):
        time.sleep(0.01)
    return value


role = sys.argv[1]
is_target = role == "target"
agent = nixl_agent(
    role,
    nixl_agent_config(
        enable_prog_thread=True,
        enable_listen_thread=True,
        listen_port=PORT if is_target else 0,
        backends=["UCX"],
    ),
)
memory = EXPECTED.copy() if is_target else numpy.zeros(BYTES, dtype=numpy.uint8)
registered = agent.register_memory([(memory.ctypes.data, BYTES, 0, "")], "DRAM")
own = agent.get_xfer_descs([(memory.ctypes.data, BYTES, 0)], "DRAM")
if is_target:
    until(lambda: agent.check_remote_metadata("initiator"))
    agent.send_notif("initiator", agent.get_serialized_descs(own))
    until(lambda: b"done" in agent.get_new_notifs().get("initiator", []))
else:

    def fetch():
        agent.fetch_remote_metadata("target", sys.argv[2], PORT)
        return agent.check_remote_metadata("target")

    until(fetch)
    agent.send_local_metadata(sys.argv[2], PORT)
    remote = agent.deserialize_descs(until(agent.get_new_notifs)["target"][0])
    for time_number in range(TIMES):
        memory[:] = 0
        last = time_number == TIMES - 1
        transfer = agent.initialize_xfer("READ", own, remote, "target", b"done" if last else b"")
        state = agent.transfer(transfer)
        while state != "DONE":
            assert state != "ERR", "the transfer failed"
            state = agent.check_xfer_state(transfer)
        assert (memory == EXPECTED).all(), "bytes differ"
        agent.release_xfer_handle(transfer)
    print(f"read {TIMES} times")
agent.deregister_memory(registered)
