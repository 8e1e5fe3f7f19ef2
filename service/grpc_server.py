"""The gRPC server: services, transport options, and the port.

Invariant: every option set here has an effect that a test observes; gRPC ignores misspelt ones in silence.
"""

from __future__ import annotations

import grpc
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from service.constraint_service import ConstraintService
from service.errors import AddressError
from service.generation_service import GenerationService
from service.interceptor import StatusInterceptor
from service.model_service import ModelService
from service.readiness import Readiness
from service.settings import ServerSettings
from service.v1 import (
    constraint_pb2,
    constraint_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)


def make_server(settings: ServerSettings, readiness: Readiness) -> tuple[grpc.aio.Server, str]:
    """A server that is bound but not started, and the address that it is bound to. Raises AddressError."""
    server = grpc.aio.server(
        interceptors=[StatusInterceptor()],
        options=_options(settings),
        maximum_concurrent_rpcs=settings.limits.max_concurrent_rpcs,
    )
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(GenerationService(readiness), server)
    constraint_pb2_grpc.add_ConstraintServiceServicer_to_server(ConstraintService(readiness), server)
    model_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(readiness), server)
    health_pb2_grpc.add_HealthServicer_to_server(readiness.health, server)
    channelz.add_channelz_servicer(server)
    files = (generation_pb2, constraint_pb2, model_pb2, health_pb2, channelz_pb2)
    names = [service.full_name for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server)
    return server, _bind(server, settings.address)


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # two servers on one port would share its connections at random
        ("grpc.max_receive_message_length", settings.limits.max_message_bytes),
        ("grpc.keepalive_time_ms", round(settings.keepalive_seconds * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        # Not grpc.keepalive_timeout_ms: a connection that does not answer was seen to stay open past it.
        ("grpc.http2.ping_timeout_ms", round(settings.keepalive_timeout_seconds * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", round(settings.min_ping_interval_seconds * 1000)),
    ]


def _bind(server: grpc.aio.Server, address: str) -> str:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise AddressError(
            f"cannot listen on {address}: it is in use, or no address of this machine; choose one with --address"
        ) from error
    if address.startswith("unix:"):
        return address
    return f"{address.rpartition(':')[0]}:{port}"
