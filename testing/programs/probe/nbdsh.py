"""Runs in nbdsh, the shell of libnbd: `step` says what is done with the export at `uri`.

write      every command that the export offers, over two connections, with its replies checked
verify     the data that `write` left are there: after a restart of the server
read-only  the same data on an export that refuses changes
"""
import errno
import random

BLOCK = 4096
MIB = 1 << 20
SIZE = 64 * MIB
# One piece of data in each MiB; the MiBs behind them are for zeros, trims and parts of blocks.
PIECES = 48
ZEROED, TRIMMED, PARTIAL = 50 * MIB, 54 * MIB, 58 * MIB
HOLE_AND_ZERO = nbd.STATE_HOLE | nbd.STATE_ZERO


def piece(number):
    """Where a piece lies, and its bytes: whole blocks, of which each has other bytes."""
    chance = random.Random(number)
    length = BLOCK * chance.randint(1, 256)
    return number * MIB, chance.randbytes(length)


def connected(structured=True):
    handle = nbd.NBD()
    handle.set_request_structured_replies(structured)
    handle.add_meta_context("base:allocation")
    handle.connect_uri(uri)
    # What a client of this library refuses by itself is the server's to answer.
    handle.set_strict_mode(0)
    assert handle.get_size() == SIZE
    assert handle.get_structured_replies_negotiated() == structured
    return handle


def refused(number, call, *words):
    try:
        call(*words)
    except nbd.Error as error:
        assert error.errnum == number, (call.__name__, words[1:], error)
        return
    raise AssertionError(f"{call.__name__} {words[1:]} was accepted")


def read(handle, length, offset, flags=0):
    """A read with structured replies: each byte comes once, in chunks of data or of zeros."""
    came = bytearray(length)

    def chunk(data, at, status, error):
        assert error.value == 0 and status in (nbd.READ_DATA, nbd.READ_HOLE)
        assert not any(came[at - offset:at - offset + len(data)])
        came[at - offset:at - offset + len(data)] = b"\1" * len(data)

    data = handle.pread_structured(length, offset, chunk, flags)
    assert all(came)
    return data


def verify(handle):
    for at, data in map(piece, range(PIECES)):
        assert handle.pread(len(data), at) == data, f"the data at {at} are others"


def write_all(handles):
    """All pieces at once over two connections, half of them durable by FUA, the others by a flush."""
    outstanding = 0
    buffers = []

    def done(error):
        nonlocal outstanding
        assert error.value == 0
        outstanding -= 1
        return 1

    for number in range(PIECES):
        at, data = piece(number)
        handle = handles[number % 2]
        buffers.append(nbd.Buffer.from_bytearray(bytearray(data)))
        outstanding += 1
        flags = nbd.CMD_FLAG_FUA if number % 4 < 2 else 0
        handle.aio_pwrite(buffers[-1], at, completion=done, flags=flags)
    while outstanding:
        for handle in handles:
            if handle.aio_in_flight():
                handle.poll(10)
    assert handles[0].can_multi_conn()
    handles[0].flush()


def offers(handle):
    for can in (handle.can_flush, handle.can_fua, handle.can_trim, handle.can_zero, handle.can_df):
        assert can(), can.__name__
    assert not handle.can_cache() and not handle.can_fast_zero()
    assert handle.can_meta_context("base:allocation")
    assert handle.get_protocol() == "newstyle-fixed"
    sizes = [handle.get_block_size(kind) for kind in (nbd.SIZE_MINIMUM, nbd.SIZE_PREFERRED, nbd.SIZE_MAXIMUM)]
    assert sizes == [BLOCK, BLOCK, 32 * MIB], sizes


def zeros_and_trims(handle):
    data = random.Random("zeros").randbytes(MIB)
    for at in (ZEROED, TRIMMED):
        handle.pwrite(data, at)
    handle.zero(MIB // 2, ZEROED + BLOCK, nbd.CMD_FLAG_FUA)
    handle.zero(BLOCK, ZEROED + 3 * MIB // 4, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE)
    wanted = bytearray(data)
    wanted[BLOCK:BLOCK + MIB // 2] = bytes(MIB // 2)
    wanted[3 * MIB // 4:3 * MIB // 4 + BLOCK] = bytes(BLOCK)
    assert read(handle, MIB, ZEROED) == wanted
    # The content of what was trimmed is undefined; what lies beside it is not.
    handle.trim(MIB // 2, TRIMMED + MIB // 4, nbd.CMD_FLAG_FUA)
    after = read(handle, MIB, TRIMMED)
    assert after[:MIB // 4] == data[:MIB // 4] and after[3 * MIB // 4:] == data[3 * MIB // 4:]


def parts_of_blocks(handle):
    wanted = bytearray(random.Random("parts").randbytes(4 * BLOCK))
    handle.pwrite(bytes(wanted), PARTIAL)
    for at, length in ((100, 1), (BLOCK - 1, 2), (BLOCK + 7, 2 * BLOCK)):
        part = random.Random(at).randbytes(length)
        handle.pwrite(part, PARTIAL + at)
        wanted[at:at + length] = part
    handle.zero(10, PARTIAL + 3 * BLOCK + 5)
    wanted[3 * BLOCK + 5:3 * BLOCK + 15] = bytes(10)
    assert read(handle, 4 * BLOCK, PARTIAL) == wanted
    assert read(handle, 3 * BLOCK, PARTIAL + 33, nbd.CMD_FLAG_DF) == wanted[33:33 + 3 * BLOCK]


def block_status(handle):
    extents = []

    def extent(context, offset, entries, error):
        assert (context, offset, error.value) == ("base:allocation", 0, 0)
        extents.extend(zip(entries[::2], entries[1::2]))

    handle.block_status(32 * MIB, 0, extent)
    assert sum(length for length, _ in extents) == 32 * MIB
    assert not any(flags & HOLE_AND_ZERO for _, flags in extents), "data are reported as a hole"


def refusals(handle):
    data = bytes(BLOCK)
    refused(errno.ENOSPC, handle.pwrite, data, SIZE)
    refused(errno.ENOSPC, handle.zero, BLOCK, SIZE - BLOCK // 2)
    refused(errno.EINVAL, handle.pread, BLOCK, SIZE)
    refused(errno.EINVAL, handle.trim, BLOCK, SIZE)
    refused(errno.EINVAL, handle.cache, BLOCK, 0)
    refused(errno.EINVAL, handle.zero, BLOCK, 0, nbd.CMD_FLAG_FAST_ZERO)
    # FUA is allowed on every command (doc/proto.md, NBD_FLAG_SEND_FUA).
    handle.pread(BLOCK, 0, nbd.CMD_FLAG_FUA)
    handle.flush(nbd.CMD_FLAG_FUA)


if step == "write":
    handles = [connected(), connected()]
    offers(handles[0])
    write_all(handles)
    verify(handles[1])
    verify(connected(structured=False))
    for at, data in map(piece, range(PIECES)):
        assert read(handles[0], len(data), at) == data
    zeros_and_trims(handles[0])
    parts_of_blocks(handles[1])
    block_status(handles[0])
    refusals(handles[0])
    verify(handles[0])
    for handle in handles:
        handle.shutdown()
elif step == "verify":
    handle = connected()
    verify(handle)
    handle.shutdown()
else:
    handle = connected()
    assert handle.is_read_only()
    verify(handle)
    refused(errno.EPERM, handle.pwrite, bytes(BLOCK), 0)
    refused(errno.EPERM, handle.zero, BLOCK, 0)
    refused(errno.EPERM, handle.trim, BLOCK, 0)
    verify(handle)
print(f"{step} done")
