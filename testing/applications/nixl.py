"""NIXL from PyPI, which has UCX and libibverbs under another name: READs of 8 MiB from another agent."""

from harness import ADDRESS, DEVICE

VARIABLES = {"UCX_TLS": "rc,ud", "UCX_NET_DEVICES": f"{DEVICE}:1"}


def install(application):
    application.pip("nixl-cu12", dependencies=False)
    application.pip("numpy")


def run(application):
    script = application.client("nixl_agent.py")
    target = application.on_rockery(application.python, script, "target", variables=VARIABLES)
    initiator = application.on_rockery(application.python, script, "initiator", ADDRESS, variables=VARIABLES)
    application.succeeds(initiator, "read 5 times")
    application.succeeds(target)
    return "8 MiB read five times from another agent, every byte compared"
