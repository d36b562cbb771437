# kubelet.py FOLDER: the kubelet's part of the device plugin API v1beta1, on Google's implementation of gRPC.
# Reads commands from standard input, one a line, and prints one line of JSON for each. Messages are encoded
# by Google's protobuf, from the descriptors below, which have the field numbers of the API's api.proto.
import json
import os
import queue
import sys
import threading
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

STRING, BOOL, MESSAGE = 9, 8, 11
MESSAGES = {
    "Empty": [],
    "DevicePluginOptions": [("pre_start_required", 1, BOOL), ("get_preferred_allocation_available", 2, BOOL)],
    "RegisterRequest": [("version", 1, STRING), ("endpoint", 2, STRING), ("resource_name", 3, STRING),
                        ("options", 4, "DevicePluginOptions")],
    "Device": [("ID", 1, STRING), ("health", 2, STRING)],
    "ListAndWatchResponse": [("devices", 1, ["Device"])],
    "ContainerAllocateRequest": [("devices_ids", 1, [STRING])],
    "AllocateRequest": [("container_requests", 1, ["ContainerAllocateRequest"])],
    "Env": [("key", 1, STRING), ("value", 2, STRING)],
    "Mount": [("container_path", 1, STRING), ("host_path", 2, STRING), ("read_only", 3, BOOL)],
    "CDIDevice": [("name", 1, STRING)],
    "ContainerAllocateResponse": [("envs", 1, ["Env"]), ("mounts", 2, ["Mount"]),
                                  ("cdi_devices", 5, ["CDIDevice"])],
    "AllocateResponse": [("container_responses", 1, ["ContainerAllocateResponse"])],
}


def classes():
    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package="v1beta1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            many = isinstance(kind, list)
            kind = kind[0] if many else kind
            made = message.field.add(name=field, number=number, label=3 if many else 1)
            if isinstance(kind, str):
                made.type, made.type_name = MESSAGE, ".v1beta1." + kind
            else:
                made.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(pool.FindMessageTypeByName("v1beta1." + name)) for name in MESSAGES}


TYPE = classes()
FOLDER = sys.argv[1]


class Kubelet:
    """Takes registrations as the kubelet does, at a socket that it makes anew."""

    def __init__(self):
        self.registered = queue.Queue()
        path = os.path.join(FOLDER, "kubelet.sock")
        if os.path.exists(path):
            os.unlink(path)
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        register = grpc.unary_unary_rpc_method_handler(
            self.register, TYPE["RegisterRequest"].FromString, TYPE["Empty"].SerializeToString)
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register})
        self.server.add_generic_rpc_handlers((handler,))
        self.server.add_insecure_port("unix:" + path)
        self.server.start()

    def register(self, request, _context):
        self.registered.put(request)
        return TYPE["Empty"]()


def call(channel, name, request, response):
    return channel.unary_unary("/v1beta1.DevicePlugin/" + name, TYPE[request].SerializeToString,
                               TYPE[response].FromString)


class Plugin:
    """The plugin that has registered."""

    def __init__(self, endpoint):
        self.channel = grpc.insecure_channel("unix:" + os.path.join(FOLDER, endpoint))
        self.lists = queue.Queue()

    def options(self):
        options = call(self.channel, "GetDevicePluginOptions", "Empty", "DevicePluginOptions")(
            TYPE["Empty"](), timeout=20)
        return {"pre-start": options.pre_start_required,
                "preferred": options.get_preferred_allocation_available}

    def watch(self):
        lists = self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch",
                                          TYPE["Empty"].SerializeToString,
                                          TYPE["ListAndWatchResponse"].FromString)(TYPE["Empty"]())
        threading.Thread(target=self.read, args=(lists,), daemon=True).start()
        return self.next_list()

    def read(self, lists):
        try:
            for one in lists:
                self.lists.put([[device.ID, device.health] for device in one.devices])
            self.lists.put("ended")
        except grpc.RpcError as error:
            self.lists.put("ended: " + error.code().name)

    def next_list(self):
        return self.lists.get(timeout=20)

    def allocate(self, containers):
        request = TYPE["AllocateRequest"]()
        for ids in containers:
            request.container_requests.add(devices_ids=ids)
        try:
            allocate = call(self.channel, "Allocate", "AllocateRequest", "AllocateResponse")
            response = allocate(request, timeout=20)
        except grpc.RpcError as error:
            return {"error": error.code().name, "details": error.details()}
        return [{"envs": {env.key: env.value for env in one.envs},
                 "mounts": [[it.container_path, it.host_path, it.read_only] for it in one.mounts],
                 "cdi": [device.name for device in one.cdi_devices]} for one in response.container_responses]


def main():
    kubelet, plugin = Kubelet(), None
    for line in sys.stdin:
        words = json.loads(line)
        if words[0] == "registration":
            request = kubelet.registered.get(timeout=20)
            plugin = Plugin(request.endpoint)
            answer = [request.version, request.endpoint, request.resource_name]
        elif words[0] == "restart":
            kubelet.server.stop(None).wait()
            kubelet = Kubelet()
            answer = "restarted"
        else:
            answer = getattr(plugin, words[0])(*words[1:])
        print(json.dumps(answer), flush=True)


main()
