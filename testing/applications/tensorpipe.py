"""TensorPipe of Debian, which PyTorch's RPC is made of: a message with a tensor over its transport `ibv`."""

from harness import ADDRESS


def install(application):
    application.apt("libtensorpipe-dev", "g++")
    application.compile("g++", "tensorpipe_message.cc", "-std=c++17", "-ltensorpipe", "-lpthread")


def run(application):
    program = application.on_rockery(application.folder / "tensorpipe_message", ADDRESS)
    application.succeeds(program, "equal")
    return "a payload and a tensor of 1 MiB between two contexts, equal"
