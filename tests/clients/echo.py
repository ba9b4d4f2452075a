"""Echo by asyncio, for the rows of programs.txt."""

import asyncio
import sys

ADDRESS = ("10.9.0.1", 8080)
BYTES = bytes(range(256)) * 400


async def answer(reader, writer):
    while part := await reader.read(5000):
        writer.write(part)
        await writer.drain()
    writer.close()


async def serve():
    async with await asyncio.start_server(answer, *ADDRESS) as server:
        await server.serve_forever()


async def ask():
    reader, writer = await asyncio.open_connection(*ADDRESS)
    writer.write(BYTES)
    await writer.drain()
    assert await reader.readexactly(len(BYTES)) == BYTES
    writer.close()
    print("echoed")


asyncio.run(serve() if sys.argv[1] == "server" else ask())
