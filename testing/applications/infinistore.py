"""InfiniStore from PyPI (a key-value store for the caches of language models): 32 blocks written and read."""

from harness import ADDRESS, DEVICE

# Its server lowers its OOM score, which a container's root may not, and ends where it cannot.
SERVER = "from infinistore import server; server.prevent_oom = lambda: None; server.main()"


def install(application):
    application.pip("infinistore", dependencies=False)
    application.pip("numpy", "uvloop==0.21.0", "fastapi", "uvicorn")


def run(application):
    server = application.on_rockery(
        application.python,
        "-c",
        SERVER,
        "--dev-name",
        DEVICE,
        "--link-type",
        "Ethernet",
        "--service-port",
        "22345",
        "--manage-port",
        "18080",
        "--prealloc-size",
        "1",
        "--minimal-allocate-size",
        "32",
    )
    application.wait_for_port(server, 22345)
    client = application.client("infinistore_blocks.py")
    application.succeeds(application.on_rockery(application.python, client, DEVICE, ADDRESS), "equal")
    return "32 blocks of 32 KiB written and read, equal"
