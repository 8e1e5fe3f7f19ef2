"""Options of the transport, observed on the wire: gRPC ignores a misspelt one in silence."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from service.errors import AddressError
from service.grpc_server import make_server
from service.limits import ServiceLimits
from service.readiness import Readiness
from service.settings import ServerSettings
from service.v1 import generation_pb2 as pb
from service.v1 import generation_pb2_grpc, model_pb2

DATA, SETTINGS, PING, GOAWAY = 0, 4, 6, 7
ACK = 1


class Http2Client:
    """As much of HTTP/2 (RFC 9113) as a silent or a noisy client needs."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(SETTINGS))

    @classmethod
    async def connect(cls, address):
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    @staticmethod
    def frame(kind, payload=b"", flags=0):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags, 0, 0, 0, 0]) + payload

    async def read(self):
        """(kind, flags, payload) of the next frame, or None at the end; settings are acknowledged."""
        header = await self._reader.read(9)
        if len(header) < 9:
            return None
        payload = await self._reader.readexactly(int.from_bytes(header[:3], "big"))
        if header[3] == SETTINGS and not header[4] & ACK:
            self._writer.write(self.frame(SETTINGS, flags=ACK))
        return header[3], header[4], payload

    async def until(self, kind):
        while (frame := await self.read()) is not None:
            if frame[0] == kind and not (kind == SETTINGS and frame[1] & ACK):
                return frame
        return None

    def send(self, kind, payload=b"", flags=0):
        self._writer.write(self.frame(kind, payload, flags))

    def close(self):
        self._writer.close()


@pytest.fixture
async def listen():
    """Factory of started servers that are still loading: ``await listen(**settings)`` gives the address."""
    servers = []

    async def start(**settings):
        server, address = make_server(ServerSettings(**{"address": "127.0.0.1:0", **settings}), Readiness())
        await server.start()
        servers.append(server)
        return address

    yield start
    for server in servers:
        await server.stop(None)


async def test_a_silent_connection_is_pinged_and_one_that_answers_lives(listen):
    client = await Http2Client.connect(await listen(keepalive_seconds=0.3, keepalive_timeout_seconds=5))
    for _ in range(4):
        _, flags, payload = await asyncio.wait_for(client.until(PING), 20)
        assert flags == 0
        client.send(PING, payload, ACK)
    client.close()


async def test_a_connection_that_does_not_answer_is_closed(listen):
    client = await Http2Client.connect(await listen(keepalive_seconds=0.3, keepalive_timeout_seconds=0.5))
    assert await asyncio.wait_for(client.until(PING), 20)
    _, _, payload = await asyncio.wait_for(client.until(GOAWAY), 20)
    assert b"ping_timeout" in payload
    assert await asyncio.wait_for(client.read(), 20) is None


async def test_the_default_does_not_ping_at_once(listen):
    client = await Http2Client.connect(await listen())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.until(PING), 1.5)


@pytest.mark.parametrize(("interval", "is_sent_away"), [(0.01, False), (30.0, True)])
async def test_clients_that_ping_too_often_are_sent_away(listen, interval, is_sent_away):
    client = await Http2Client.connect(await listen(min_ping_interval_seconds=interval))
    reading = asyncio.create_task(client.until(GOAWAY))
    for _ in range(10):
        await asyncio.sleep(0.05)
        client.send(PING, bytes(8))
    done, _ = await asyncio.wait([reading], timeout=20 if is_sent_away else 0.5)
    assert bool(done) == is_sent_away
    if is_sent_away:
        assert b"too_many_pings" in reading.result()[2]
    reading.cancel()


async def test_a_port_in_use_is_refused_with_a_mend(listen):
    address = await listen()
    with pytest.raises(AddressError, match=f"cannot listen on {address}.*--address"):
        await listen(address=address)


async def test_an_address_of_another_machine_is_refused_with_a_mend(listen):
    with pytest.raises(AddressError, match="no address of this machine"):
        await listen(address="192.0.2.1:0")


async def test_a_unix_socket_will_do(listen, tmp_path):
    address = await listen(address=f"unix:{tmp_path}/socket")
    assert address == f"unix:{tmp_path}/socket"
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="still loading"):
            await generation_pb2_grpc.GenerationServiceStub(channel).Generate(pb.GenerateRequest())


async def test_the_message_limit_is_the_flags(listen):
    address = await listen(limits=ServiceLimits(max_message_bytes=1000))
    async with grpc.aio.insecure_channel(address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match="still loading"):
            await stub.Generate(pb.GenerateRequest(text="x" * 900))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(pb.GenerateRequest(text="x" * 1100))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_calls_past_the_limit_are_refused(run_server):
    async with run_server(engine={"step_s": 0.05}, limits=ServiceLimits(max_concurrent_rpcs=2)) as server:
        options = pb.SamplingOptions(ignore_eos=True)
        message = pb.GenerateStreamRequest(request=pb.GenerateRequest(text="ab", sampling=options))
        streams = [server.generation.GenerateStream(message) for _ in range(2)]
        for stream in streams:
            await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.models.ListModels(model_pb2.ListModelsRequest())
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        for stream in streams:
            stream.cancel()


async def test_reflection_lists_every_service_and_channelz_answers(listen):
    async with grpc.aio.insecure_channel(await listen()) as channel:
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask]))
        names = {service.name for service in (await answers.read()).list_services_response.service}
        assert names == {
            "espalier.v1.GenerationService",
            "espalier.v1.ConstraintService",
            "espalier.v1.ModelService",
            "grpc.health.v1.Health",
            "grpc.channelz.v1.Channelz",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        servers = await channelz_pb2_grpc.ChannelzStub(channel).GetServers(channelz_pb2.GetServersRequest())
        assert servers.server
