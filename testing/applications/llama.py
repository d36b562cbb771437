"""llama.cpp's RPC backend over RoCE, from the source that the Python package llama-cpp-python has within.

Only ggml and the server are built, which takes minutes; the client is a network with random weights.
"""

import os
import subprocess
import tarfile

from harness import ADDRESS, CLIENTS

VERSION = "0.3.36"
PORT = "50052"
# What does not change what is transferred, and takes long to compile, is left out.
OPTIONS = [
    *("-DGGML_RPC=ON", "-DGGML_LLAMAFILE=OFF", "-DGGML_OPENMP=OFF"),
    *("-DGGML_CPU_REPACK=OFF", "-DGGML_NATIVE=OFF"),
    *("-DLLAMA_BUILD_COMMON=OFF", "-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"),
    *("-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF"),
    *("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O1", "-DCMAKE_CXX_FLAGS=-O1"),
]


def install(application):
    application.apt("build-essential", "cmake", "libibverbs-dev")
    folder = application.folder
    name = f"llama_cpp_python-{VERSION}"
    source, build = folder / name / "vendor" / "llama.cpp", folder / "build"
    if not source.exists():
        words = ("download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder)
        application.pip_command(*words, f"llama-cpp-python=={VERSION}")
        with tarfile.open(folder / f"{name}.tar.gz") as file:
            file.extractall(folder)
    libraries = build / "bin"
    link = [f"-L{libraries}", "-lggml", "-lggml-base", "-lggml-cpu", "-lggml-rpc", f"-Wl,-rpath,{libraries}"]
    include = f"-I{source}/ggml/include"
    server = source / "tools" / "rpc" / "rpc-server.cpp"
    with (folder / "make.log").open("wb") as log:
        for command in (
            ["cmake", "-S", source, "-B", build, *OPTIONS],
            ["cmake", "--build", build, f"-j{os.cpu_count()}", "--target", "ggml"],
            ["g++", "-std=c++17", include, server, "-o", folder / "rpc-server", *link],
            ["gcc", "-O1", include, CLIENTS / "ggml_rpc.c", "-o", folder / "ggml_rpc", *link],
        ):
            subprocess.run(command, check=True, stdout=log, stderr=log)


def run(application):
    variables = {"GGML_RPC_DEBUG": "1"}
    server = application.on_rockery(
        *(application.folder / "rpc-server", "-H", ADDRESS, "-p", PORT, "-t", "1"), variables=variables
    )
    application.wait_for_port(server, int(PORT))
    client = application.on_rockery(application.folder / "ggml_rpc", f"{ADDRESS}:{PORT}")
    # Without RDMA it would stay on TCP.
    said = application.succeeds(client, "RDMA activated", "with the same bits")
    application.wait_for(server, "RDMA activated")
    return said.strip().splitlines()[-1]
