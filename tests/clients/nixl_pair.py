"""A write by NIXL's agents into another process, for the rows of programs.txt."""

import pathlib
import pickle
import sys
import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

SIZE = 1 << 20
MEETING = pathlib.Path("/tmp/server")

side = sys.argv[1]
agent = nixl_agent(side, nixl_agent_config(backends=["UCX"]))
memory = numpy.full(SIZE, 7 if side == "client" else 0, dtype=numpy.uint8)
place = [(memory.ctypes.data, SIZE, 0, "")]
agent.register_memory(place, "DRAM")
if side == "server":
    part = MEETING.with_suffix(".part")
    part.write_bytes(pickle.dumps((agent.get_agent_metadata(), memory.ctypes.data)))
    part.rename(MEETING)
    while memory[0] != 7 or memory[-1] != 7:
        time.sleep(0.01)
    print("arrived", flush=True)
    time.sleep(60)
else:
    until = time.monotonic() + 30
    while not MEETING.exists() and time.monotonic() < until:
        time.sleep(0.1)
    metadata, address = pickle.loads(MEETING.read_bytes())
    peer = agent.add_remote_agent(metadata)
    here = agent.get_xfer_descs([(memory.ctypes.data, SIZE, 0)], "DRAM")
    there = agent.get_xfer_descs([(address, SIZE, 0)], "DRAM")
    transfer = agent.initialize_xfer("WRITE", here, there, peer)
    state = agent.transfer(transfer)
    while state == "PROC" and time.monotonic() < until:
        state = agent.check_xfer_state(transfer)
    print("written" if state == "DONE" else state)
    sys.exit(state != "DONE")
