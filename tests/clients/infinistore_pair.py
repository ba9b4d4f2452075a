"""Blocks written to InfiniStore and read back, for the rows of programs.txt."""

import asyncio
import sys

import infinistore
import numpy
import uvloop

SIZE = 1 << 16
DEVICE = {"dev_name": "softhca_0", "link_type": "Ethernet", "service_port": 22345}


def serve():
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    config = infinistore.ServerConfig(manage_port=18080, prealloc_size=1, **DEVICE)
    infinistore.register_server(loop, config)
    loop.run_forever()


async def ask():
    config = infinistore.ClientConfig(
        host_addr="10.9.0.1", connection_type=infinistore.TYPE_RDMA, **DEVICE
    )
    connection = infinistore.InfinityConnection(config)
    await connection.connect_async()
    here = numpy.arange(SIZE, dtype=numpy.uint8)
    there = numpy.zeros(SIZE, dtype=numpy.uint8)
    for memory in (here, there):
        connection.register_mr(memory.ctypes.data, SIZE)
    await connection.rdma_write_cache_async([("a", 0)], SIZE, here.ctypes.data)
    await connection.rdma_read_cache_async([("a", 0)], SIZE, there.ctypes.data)
    assert (here == there).all()
    print("read back")


if sys.argv[1] == "server":
    serve()
else:
    asyncio.run(ask())
