"""Ceph's messenger over RDMA (`ms type = async+rdma`): a monitor, an OSD with its data in memory, clients."""

import filecmp
import os
import shutil
import uuid

from harness import ADDRESS, DEVICE

# Of these three, `rados` is the client. The monitor keeps its data in a file, the OSD in memory.
PACKAGES = ("ceph-mon", "ceph-osd", "ceph-common")
CLUSTER = "6f1c1f5e-0d3a-4f0e-9a37-2f1b7f3f9d10"
# Receive buffers are 128 KiB each, and Ceph's default is 32,768 of them for each process.
SETTINGS = f"""\
[global]
fsid = {CLUSTER}
mon host = v2:{ADDRESS}:3300/0
mon initial members = a
public addr = {ADDRESS}
auth cluster required = none
auth service required = none
auth client required = none
ms type = async+rdma
ms cluster type = async+rdma
ms public type = async+rdma
ms async rdma device name = {DEVICE}
ms async rdma receive buffers = 2048
ms async rdma receive queue len = 256
ms async rdma send buffers = 256
ms async op threads = 1
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 268435456
mon allow pool size one = true
mon data avail crit = 0
run dir = FOLDER
admin socket = FOLDER/$name.asok
log file = FOLDER/$name.log
pid file = FOLDER/$name.pid
mon data = FOLDER/mon
osd data = FOLDER/osd
"""
BYTES = 8 << 20


def install(application):
    application.apt(*PACKAGES)


def run(application):
    folder = application.folder
    for name in ("mon", "osd"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "osd").mkdir()
    (folder / "ceph.conf").write_text(SETTINGS.replace("FOLDER", str(folder)))
    settings = ("-c", folder / "ceph.conf")

    def ceph(*words):
        return application.succeeds(application.on_rockery("ceph", *settings, *words))

    def rados(*words, texts=()):
        return application.succeeds(application.on_rockery("rados", *settings, "-p", "pool", *words), *texts)

    monitors = folder / "monitors"
    application.succeeds(
        application.start(
            *("monmaptool", "--create", "--clobber", "--fsid", CLUSTER),
            *("--addv", "a", f"[v2:{ADDRESS}:3300]", monitors),
        )
    )
    application.succeeds(application.start("ceph-mon", *settings, "-i", "a", "--mkfs", "--monmap", monitors))
    application.on_rockery("ceph-mon", "-f", *settings, "-i", "a")
    name = str(uuid.uuid4())
    ceph("osd", "new", name)
    application.succeeds(
        application.start("ceph-osd", *settings, "-i", "0", "--mkfs", "--osd-uuid", name, "--no-mon-config")
    )
    application.on_rockery("ceph-osd", "-f", *settings, "-i", "0")
    ceph("osd", "pool", "create", "pool", "8")
    sent, received = folder / "sent", folder / "received"
    sent.write_bytes(os.urandom(BYTES))
    rados("put", "object", sent)
    rados("get", "object", received)
    if not filecmp.cmp(sent, received, shallow=False):
        application.fail(application.started[-1], "what was read is not what was written")
    writes = ("bench", "5", "write", "-b", "65536", "-t", "4", "--max-objects", "256", "--no-cleanup")
    rados(*writes, texts=["Total writes made"])
    said = rados("bench", "5", "seq", "-t", "4", texts=["Total reads made"])
    return f"{BYTES >> 20} MiB put and got, {said.split('Total reads made:')[1].split()[0]} objects read"
