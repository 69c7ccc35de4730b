"""A server of its own process; prints its port."""

import asyncio

from conftest import TOKEN, FakeHandler

from themis_ray.rpc.server import ArbiterServer


async def main():
    server = ArbiterServer(FakeHandler(), TOKEN, "127.0.0.1")
    print(await server.start(), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
