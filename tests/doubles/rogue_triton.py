"""A gRPC server that says what Triton says, and then answers as a test wants, or not at all."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2_grpc

from mrcfa import preset
from mrcfa.backends.served import Served
from mrcfa.bundle.manifest import Output
from mrcfa.serving.model_config import parameters

FRAME = (96, 160)
SERVED = Served(
    mrcfa="0.2.0",
    bundle="0123456789abcdef",
    variant="fp32",
    config=preset("vspw", "b0", size=FRAME),
    frame=FRAME,
    output=Output.MASK,
    classes=tuple(map(str, range(124))),
    palette=tuple((number, 0, 0) for number in range(124)),
    sequences=4,
)


class RogueTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self):
        self.facts = SERVED.to_parameters()
        self.input = {"name": "image", "data_type": "TYPE_UINT8", "dims": [1, *FRAME, 3]}
        self.output = {"name": "mask", "data_type": "TYPE_UINT8", "dims": [1, *FRAME]}
        self.answer = {"name": "mask", "datatype": "UINT8", "shape": [1, *FRAME]}
        self.content = bytes(FRAME[0] * FRAME[1])
        self.shares = False
        """Answers through shared memory are zeros: nothing is ever written there."""
        self.registered = 0
        self.goes_on = Event()
        self.goes_on.set()
        self._server = grpc.server(ThreadPoolExecutor(8))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"triton://127.0.0.1:{port}/mrcfa"
        self._server.start()

    def close(self):
        self.goes_on.set()
        self._server.stop(None)

    def ModelConfig(self, request, context):
        self.goes_on.wait()
        config = {"name": "mrcfa", "input": [self.input], "output": [self.output]}
        message = triton.model_config_pb2.ModelConfig(**config)
        for each in parameters(self.facts):
            message.parameters[each["key"]].string_value = each["value"]["string_value"]
        return triton.service_pb2.ModelConfigResponse(config=message)

    def ModelStatistics(self, request, context):
        self.goes_on.wait()
        return triton.service_pb2.ModelStatisticsResponse()

    def SystemSharedMemoryRegister(self, request, context):
        self.registered += 1
        self.goes_on.wait()
        if not self.shares:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "it does not see this memory")
        return triton.service_pb2.SystemSharedMemoryRegisterResponse()

    def ModelInfer(self, request, context):
        self.goes_on.wait()
        response = triton.service_pb2.ModelInferResponse(model_name="mrcfa")
        response.outputs.add(**self.answer)
        response.raw_output_contents.append(self.content)
        return response
