"""A rank of collectives of NCCL, by PyTorch: sums, gathered parts and exchanged parts of 1 KiB to 16 MiB,
which are compared. Several ranks use one GPU, as hosts of their own (`NCCL_HOSTID`)."""

import os

import torch
import torch.distributed as dist

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LARGEST = 16 << 20
# Whole numbers that a sum of float32 has exactly.
PERIOD = 1021


def numbers(count, of):
    """What a rank contributes."""
    return (torch.arange(count, device="cuda") % PERIOD + 7 * of).float()


def addressed(count, sender, receiver):
    """What a rank sends to another one."""
    return (torch.arange(count, device="cuda") % PERIOD + 10 * sender + receiver).float()


def check(what, size, got, wanted):
    if not torch.equal(got, wanted):
        place = int((got != wanted).nonzero()[0])
        raise SystemExit(f"rank {rank}: {what} of {size} bytes differs at element {place}")


torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method=os.environ["STORE"], rank=rank, world_size=ranks)
size = 1024
while size <= LARGEST:
    count = size // 4
    summed = numbers(count, rank)
    dist.all_reduce(summed)
    check("the sum", size, summed, sum(numbers(count, of) for of in range(ranks)))
    parts = [torch.empty(count, device="cuda") for _ in range(ranks)]
    dist.all_gather(parts, numbers(count, rank))
    for of, part in enumerate(parts):
        check("a gathered part", size, part, numbers(count, of))
    sent = torch.cat([addressed(count // ranks, rank, to) for to in range(ranks)])
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    wanted = torch.cat([addressed(count // ranks, of, rank) for of in range(ranks)])
    check("an exchange", size, received, wanted)
    size *= 4
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} of {ranks}: equal", flush=True)
