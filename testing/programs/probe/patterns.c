// patterns: sends patterns through every kind of operation and checks each byte that arrives, and each
// that must not change.
//
//   patterns [-d DEVICE] [-g GID_INDEX] [-6] [-m PATH_MTU] [-s] OPERATION          waits for the other side
//   patterns [-d DEVICE] [-g GID_INDEX] [-6] [-m PATH_MTU] [-s] OPERATION ADDRESS  goes to it
//
// OPERATION is send, write, read, atomic, uc or ud; -6 takes an IPv6 GID; -s moves memory that is mapped
// shared. Both sides ask and answer at the same time, so one run shows both directions.

#include "device.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sys/mman.h>

#define PORT "18521"
#define SLOTS 8u                 // messages on their way at once
#define SLOT_BYTES 131072u
#define AREA (SLOTS * SLOT_BYTES)
#define ROUNDS 5u
#define ATOMICS 40u              // of each kind
#define GRH 40u
#define QKEY 0x1badcafeu
#define UNTOUCHED 0xEE
#define TIMEOUT_MS 30000
#define ADDEND 0x100000003ull    // both halves of the word change

enum operation { SEND, WRITE, READ, ATOMIC, UC, UD, OPERATIONS };
static const char *const names[OPERATIONS] = {"send", "write", "read", "atomic", "uc", "ud"};

struct card { uint32_t qpn, psn, rkey; uint64_t out, in; union ibv_gid gid; };

struct side {
  enum operation operation;
  bool client, ipv6, shared;
  const char *device;
  int gid_index, peer;
  unsigned mtu;
  unsigned char *out, *in;       // what is sent or may be read, and what is written to
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct ibv_ah *ah;
  struct card mine, theirs;
  unsigned long messages, bytes;
};

static void wait_for_peer(const struct side *side) {
  char token = 0;
  exchange(side->peer, &token, &token, 1);
}

// The GID that stands for an IPv4 address is ::ffff:A.B.C.D.
static bool is_ipv4(const union ibv_gid *gid) {
  static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};
  return !memcmp(gid->raw, prefix, sizeof prefix);
}

static void find_gid(struct side *side) {
  for (int index = side->ipv6 ? 0 : side->gid_index;; index++) {
    union ibv_gid *gid = &side->mine.gid;
    done(ibv_query_gid(side->context, 1, index, gid), "ibv_query_gid");
    bool routed = gid->raw[0] != 0xfe && gid->raw[0] != 0;
    if (side->ipv6 ? routed : is_ipv4(gid)) {
      side->gid_index = index;
      return;
    }
  }
}

// Memory that the other end may map as well, where it is on this host.
static unsigned char *shared_memory(void) {
  int fd = memfd_create("patterns", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 2 * AREA)) fail("memfd: %s", strerror(errno));
  void *memory = mmap(NULL, 2 * AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void make_resources(struct side *side) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;
  static const enum ibv_qp_type types[OPERATIONS] = {[SEND] = IBV_QPT_RC, [WRITE] = IBV_QPT_RC,
    [READ] = IBV_QPT_RC, [ATOMIC] = IBV_QPT_RC, [UC] = IBV_QPT_UC, [UD] = IBV_QPT_UD};
  side->context = open_device(side->device);
  side->out = have(side->shared ? shared_memory() : aligned_alloc(4096, 2 * AREA), "memory");
  side->in = side->out + AREA;
  side->pd = have(ibv_alloc_pd(side->context), "ibv_alloc_pd");
  side->mr = have(ibv_reg_mr(side->pd, side->out, 2 * AREA, access), "ibv_reg_mr");
  side->cq = have(ibv_create_cq(side->context, 4 * SLOTS, NULL, NULL, 0), "ibv_create_cq");
  struct ibv_qp_init_attr attributes = {.send_cq = side->cq, .recv_cq = side->cq,
    .qp_type = types[side->operation],
    .cap = {.max_send_wr = SLOTS, .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1}};
  side->qp = have(ibv_create_qp(side->pd, &attributes), "ibv_create_qp");
  side->mine.qpn = side->qp->qp_num;
  side->mine.psn = side->client ? 0xfffff0 : 7;
  side->mine.rkey = side->mr->rkey;
  side->mine.out = (uintptr_t)side->out;
  side->mine.in = (uintptr_t)side->in;
  find_gid(side);
}

static void connect_queue_pair(struct side *side) {
  const bool uc = side->operation == UC, ud = side->operation == UD, rc = !uc && !ud;
  enum ibv_mtu mtu = IBV_MTU_256;
  while (128u << mtu < side->mtu) mtu++;
  struct ibv_ah_attr address = {.is_global = 1, .port_num = 1,
    .grh = {.dgid = side->theirs.gid, .sgid_index = side->gid_index, .hop_limit = 64}};
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  done(ibv_modify_qp(side->qp, &to, mask), "RESET to INIT");

  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = side->theirs.qpn,
    .rq_psn = side->theirs.psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = address};
  mask = IBV_QP_STATE;
  if (!ud) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  done(ibv_modify_qp(side->qp, &to, mask), "INIT to RTR");

  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = side->mine.psn, .timeout = 17 /* 537 ms */,
    .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  done(ibv_modify_qp(side->qp, &to, mask), "RTR to RTS");
  if (ud) side->ah = have(ibv_create_ah(side->pd, &address), "ibv_create_ah");
}

// Sizes around every edge that the path MTU has. UC and UD do not retransmit what a queue dropped, so
// their messages are small; one of UD is one packet.
static unsigned size_of(const struct side *side, unsigned round, unsigned slot) {
  const unsigned mtu = side->mtu;
  const unsigned sizes[] = {1, 2, 3, mtu - 1, mtu, 64, mtu / 2 + 1,    // as far as UD goes
    mtu + 1, 2 * mtu, 2 * mtu + 5,                                     // and UC
    7 * mtu + 3, 65536, 100001};
  const unsigned count = side->operation == UD ? 7 : side->operation == UC ? 10 : 13;
  return sizes[(round * SLOTS + slot) % count];
}

// Messages begin at every alignment.
static unsigned place_of(unsigned round, unsigned slot) {
  return slot * SLOT_BYTES + (round * 7 + slot * 3) % 64;
}

static unsigned char pattern(bool of_client, unsigned round, unsigned slot, unsigned at) {
  uint32_t seed = (round * SLOTS + slot) * 2 + of_client;
  return (at * 2654435761u ^ (seed + 1) * 0x9e3779b9u) >> 19 ^ at >> 8;
}

static void fill(struct side *side, unsigned round) {
  memset(side->out, 0x55, AREA);
  memset(side->in, UNTOUCHED, AREA);
  for (unsigned slot = 0; slot < SLOTS; slot++)
    for (unsigned at = 0, size = size_of(side, round, slot); at < size; at++)
      side->out[place_of(round, slot) + at] = pattern(side->client, round, slot, at);
}

// Everything that came is what the other side sent, and nothing beside it changed.
static void verify(const struct side *side, unsigned round) {
  const unsigned extra = side->operation == UD ? GRH : 0;
  for (unsigned slot = 0; slot < SLOTS; slot++) {
    const unsigned begin = place_of(round, slot), size = size_of(side, round, slot);
    for (unsigned at = slot * SLOT_BYTES; at < (slot + 1) * SLOT_BYTES; at++) {
      const bool within = at >= begin + extra && at < begin + extra + size;
      if (at >= begin && at < begin + extra) continue;   // the GRH holds addresses
      unsigned expected = within ? pattern(!side->client, round, slot, at - begin - extra) : UNTOUCHED;
      if (side->in[at] != expected)
        fail("%s, round %u, message %u of %u bytes: byte %d is %02x and not %02x", names[side->operation],
          round, slot, size, (int)(at - begin - extra), side->in[at], expected);
    }
  }
}

// Waits for so many completions. Sends have wr_id below SLOTS, receives above.
static void reap(struct side *side, unsigned count, unsigned round) {
  const unsigned extra = side->operation == UD ? GRH : 0;
  const long end = now_ms() + TIMEOUT_MS;
  for (struct ibv_wc wc; count;) {
    int found = ibv_poll_cq(side->cq, 1, &wc);
    if (found < 0) fail("ibv_poll_cq gave %d", found);
    if (!found && now_ms() > end) fail("%s, round %u: %u completions are missing", names[side->operation],
      round, count);
    if (!found) continue;
    if (wc.status) fail("%s, round %u, request %u: %s", names[side->operation], round, (unsigned)wc.wr_id,
      ibv_wc_status_str(wc.status));
    if (wc.wr_id >= SLOTS && wc.byte_len != size_of(side, round, wc.wr_id - SLOTS) + extra)
      fail("%s, round %u, receive %u: %u bytes", names[side->operation], round, (unsigned)wc.wr_id - SLOTS,
        wc.byte_len);
    count--;
  }
}

static void post_receives(struct side *side, unsigned round) {
  for (unsigned slot = 0; slot < SLOTS; slot++) {
    const unsigned place = place_of(round, slot);
    struct ibv_sge piece = {side->mine.in + place, SLOT_BYTES - place % SLOT_BYTES, side->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = SLOTS + slot, .sg_list = &piece, .num_sge = 1};
    done(ibv_post_recv(side->qp, &wr, &bad), "ibv_post_recv");
  }
}

static void post_round(struct side *side, unsigned round) {
  for (unsigned slot = 0; slot < SLOTS; slot++) {
    const unsigned place = place_of(round, slot), size = size_of(side, round, slot);
    const bool read = side->operation == READ;
    struct ibv_sge piece = {(read ? side->mine.in : side->mine.out) + place, size, side->mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = slot, .sg_list = &piece, .num_sge = 1,
      .opcode = read ? IBV_WR_RDMA_READ : side->operation == WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
      .send_flags = IBV_SEND_SIGNALED};
    if (side->ah) {
      wr.wr.ud.ah = side->ah;
      wr.wr.ud.remote_qpn = side->theirs.qpn;
      wr.wr.ud.remote_qkey = QKEY;
    } else {
      wr.wr.rdma.remote_addr = (read ? side->theirs.out : side->theirs.in) + place;
      wr.wr.rdma.rkey = side->theirs.rkey;
    }
    done(ibv_post_send(side->qp, &wr, &bad), "ibv_post_send");
    side->messages++;
    side->bytes += size;
  }
}

static void move_patterns(struct side *side) {
  const bool receives = side->operation == SEND || side->operation == UC || side->operation == UD;
  for (unsigned round = 0; round < ROUNDS; round++) {
    fill(side, round);
    if (receives) post_receives(side, round);
    wait_for_peer(side);         // both are filled
    post_round(side, round);
    reap(side, receives ? 2 * SLOTS : SLOTS, round);
    wait_for_peer(side);         // both have all
    verify(side, round);
  }
}

static uint64_t one_atomic(struct side *side, enum ibv_wr_opcode opcode, unsigned word, uint64_t first,
  uint64_t second) {
  struct ibv_sge piece = {side->mine.in, 8, side->mr->lkey};
  struct ibv_send_wr *bad, wr = {.sg_list = &piece, .num_sge = 1, .opcode = opcode,
    .send_flags = IBV_SEND_SIGNALED};
  wr.wr.atomic.remote_addr = side->theirs.out + 8 * word;
  wr.wr.atomic.rkey = side->theirs.rkey;
  wr.wr.atomic.compare_add = first;
  wr.wr.atomic.swap = second;
  done(ibv_post_send(side->qp, &wr, &bad), "ibv_post_send");
  reap(side, 1, 0);
  side->messages++;
  side->bytes += 8;
  return *(volatile uint64_t *)side->in;
}

static void expect(const char *what, unsigned number, uint64_t expected, uint64_t found) {
  if (expected != found)
    fail("%s %u: %016llx and not %016llx", what, number, (unsigned long long)found,
      (unsigned long long)expected);
}

// Word 0 is added to, word 1 is swapped; each is the other side's alone to change.
static void count_up(struct side *side) {
  uint64_t *words = (uint64_t *)side->out;
  memset(side->out, 0, AREA);
  wait_for_peer(side);
  for (unsigned i = 0; i < ATOMICS; i++) {
    expect("FetchAdd", i, i * ADDEND, one_atomic(side, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, ADDEND, 0));
    expect("CmpSwap", i, i, one_atomic(side, IBV_WR_ATOMIC_CMP_AND_SWP, 1, i, i + 1));
    expect("CmpSwap that misses", i, i + 1, one_atomic(side, IBV_WR_ATOMIC_CMP_AND_SWP, 1, i, 99));
  }
  wait_for_peer(side);
  expect("word", 0, ATOMICS * ADDEND, words[0]);
  expect("word", 1, ATOMICS, words[1]);
  expect("word", 2, 0, words[2]);
}

static void clean_up(struct side *side) {
  if (side->ah) done(ibv_destroy_ah(side->ah), "ibv_destroy_ah");
  done(ibv_destroy_qp(side->qp), "ibv_destroy_qp");
  done(ibv_destroy_cq(side->cq), "ibv_destroy_cq");
  done(ibv_dereg_mr(side->mr), "ibv_dereg_mr");
  done(ibv_dealloc_pd(side->pd), "ibv_dealloc_pd");
  done(ibv_close_device(side->context), "ibv_close_device");
  if (side->shared) munmap(side->out, 2 * AREA);
  else free(side->out);
  close(side->peer);
}

int main(int argc, char **argv) {
  struct side side = {.gid_index = 0, .mtu = 1024, .operation = OPERATIONS};
  for (int option; (option = getopt(argc, argv, "d:g:m:6s")) != -1;) {
    if (option == 'd') side.device = optarg;
    else if (option == 'g') side.gid_index = atoi(optarg);
    else if (option == 'm') side.mtu = atoi(optarg);
    else if (option == '6') side.ipv6 = true;
    else if (option == 's') side.shared = true;
    else return 2;
  }
  for (int i = 0; i < OPERATIONS && optind < argc; i++)
    if (!strcmp(names[i], argv[optind])) side.operation = i;
  if (side.operation == OPERATIONS) fail("the operation is send, write, read, atomic, uc or ud");
  const char *host = argv[optind + 1];
  side.client = host;
  side.peer = meet(host, PORT);
  make_resources(&side);
  exchange(side.peer, &side.mine, &side.theirs, sizeof side.mine);
  connect_queue_pair(&side);
  wait_for_peer(&side);
  if (side.operation == ATOMIC) count_up(&side);
  else move_patterns(&side);
  printf("%s: %lu messages, %lu bytes, all as they were sent\n", names[side.operation], side.messages,
    side.bytes);
  clean_up(&side);
  return 0;
}
