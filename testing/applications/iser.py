"""iSCSI over RDMA (iSER): Debian's tgt as the target and libiscsi as the initiator."""

from harness import ADDRESS

TARGET, INITIATORS = "iqn.2024-01.org.rockery:disk", [
    "iqn.2024-01.org.rockery:a",
    "iqn.2024-01.org.rockery:b",
]
# tgt has a control socket for each number: the default is that of the machine's own tgtd.
CONTROL = "9"
CASES = ["SCSI.Write16", "SCSI.Verify10"]


def install(application):
    application.apt("tgt", "libiscsi-bin")


def run(application):
    disk = application.folder / "disk.img"
    with disk.open("wb") as file:
        file.truncate(64 << 20)
    daemon = application.on_rockery("tgtd", "-f", "-C", CONTROL, "--iser", "pool_sz_mb=64")
    application.wait_for_port(daemon, 3260)

    def administer(*words):
        application.succeeds(application.start("tgtadm", "-C", CONTROL, "--lld", "iser", "--mode", *words))

    administer("target", "--op", "new", "--tid", "1", "-T", TARGET)
    administer("logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", disk)
    administer("target", "--op", "bind", "--tid", "1", "-I", "ALL")
    for initiator in INITIATORS:
        administer("target", "--op", "bind", "--tid", "1", "-Q", initiator)
    url = f"iser://{ADDRESS}:3260/{TARGET}/1"
    for case in CASES:
        # At times libiscsi 1.19 takes a descriptor of an empty list, and ends with a segmentation fault.
        application.succeeds_once_ready(
            lambda: application.on_rockery(
                "iscsi-test-cu", "-i", INITIATORS[0], "-I", INITIATORS[1], "-d", "-s", "-t", case, url
            )
        )
    return f"iscsi-test-cu's {' and '.join(CASES)} pass"
