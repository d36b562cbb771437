"""echo.py ADDRESS PORT [CLIENTS BYTES]: sends back what it is sent; with CLIENTS, so many clients at once
that check what comes back. Written for plain sockets, with epoll underneath (asyncio's selector on Linux)."""

import asyncio
import hashlib
import random
import sys


async def serve(address, port):
    async def answer(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, address, port)
    await server.serve_forever()


async def ask(address, port, number, length):
    reader, writer = await asyncio.open_connection(address, port)
    data = random.Random(number).randbytes(length)

    async def send():
        for at in range(0, length, 10007):
            writer.write(data[at:at + 10007])
            await writer.drain()
        writer.write_eof()

    _, answer = await asyncio.gather(send(), reader.read(-1))
    writer.close()
    same = hashlib.sha256(answer).digest() == hashlib.sha256(data).digest()
    assert same, f"client {number}: {len(answer)} bytes of {length} came back, or others"


async def main():
    address, port = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) == 3:
        await serve(address, port)
    clients, length = int(sys.argv[3]), int(sys.argv[4])
    await asyncio.gather(*(ask(address, port, number, length) for number in range(clients)))
    print(f"{clients} clients had {length} bytes back")


asyncio.run(main())
