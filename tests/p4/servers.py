"""P4Runtime servers with faults that a real switch cannot be made to have."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.rpc import code_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc


class ObedientServer(p4runtime_pb2_grpc.P4RuntimeServicer):  # type: ignore[misc]  # it has no types
    """Makes everybody primary, accepts everything, echoes packets, and has nothing; tests make it worse."""

    def StreamChannel(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802  (gRPC's name)
        for request in request_iterator:
            response = p4runtime_pb2.StreamMessageResponse()
            if request.HasField("packet"):
                response.packet.ParseFromString(request.packet.SerializeToString())
                del response.packet.metadata[1:]
                response.packet.metadata.add(metadata_id=2, value=b"\x05")
            else:
                response.arbitration.CopyFrom(request.arbitration)
                response.arbitration.status.code = code_pb2.OK
            yield response

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        return p4runtime_pb2.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802  (gRPC's name)
        yield p4runtime_pb2.ReadResponse()


class SilentServer(p4runtime_pb2_grpc.P4RuntimeServicer):  # type: ignore[misc]  # likewise
    """Takes every question and answers none until it is told to end."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def StreamChannel(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802  (gRPC's name)
        self.end.wait()
        return iter(())

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802  (gRPC's name)
        self.end.wait()
        return p4runtime_pb2.GetForwardingPipelineConfigResponse()


@contextmanager
def serving(servicer: Any, folder: Path) -> Iterator[str]:
    """The address at which a servicer answers."""
    address = f"unix:{folder / 'p4runtime'}"
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    server.start()
    try:
        yield address
    finally:
        server.stop(None).wait()
