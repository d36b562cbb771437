"""QEMU of the distribution: live migration of a virtual machine over RDMA, all memory pinned."""

import socket
import time

from harness import ADDRESS, Failure, SECONDS

MACHINE = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "q35,accel=tcg", "-m", "128"]


def install(application):
    application.apt("qemu-system-x86", "seabios")


def ask(path, command):
    """What QEMU's monitor answers."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(str(path))
        said = ""
        for line in (None, command):
            if line:
                monitor.sendall(f"{line}\n".encode())
                said = ""
            while not said.endswith("(qemu) "):
                received = monitor.recv(4096)
                if not received:
                    raise Failure(f"QEMU's monitor ended: {said}")
                said += received.decode(errors="replace")
        return said


def run(application):
    first, second = application.folder / "first.socket", application.folder / "second.socket"
    for path in (first, second):
        path.unlink(missing_ok=True)
    destination = application.on_rockery(
        *MACHINE, "-monitor", f"unix:{second},server,nowait", "-incoming", f"rdma:{ADDRESS}:4444"
    )
    source = application.on_rockery(*MACHINE, "-monitor", f"unix:{first},server,nowait")
    until = time.monotonic() + SECONDS
    while not (first.exists() and second.exists()):
        if time.monotonic() > until or source.poll() is not None or destination.poll() is not None:
            application.fail(destination, "QEMU did not start")
        time.sleep(0.1)
    for path in (first, second):
        ask(path, "migrate_set_capability rdma-pin-all on")
    # The source runs for a moment, so that its memory is not all zero.
    time.sleep(1)
    ask(first, f"migrate -d rdma:{ADDRESS}:4444")
    while "Migration status: completed" not in (state := ask(first, "info migrate")):
        if "failed" in state or time.monotonic() > until:
            application.fail(source, f"the migration did not end: {state}")
        time.sleep(0.2)
    while "running" not in (state := ask(second, "info status")):
        if time.monotonic() > until:
            application.fail(destination, f"the destination does not run: {state}")
        time.sleep(0.1)
    return "migrated with all memory pinned, the destination runs"
