// scenes: small scenes between two queue pairs whose outcome the specification settles, and which no
// tool shows.
//
//   scenes [-d DEVICE] [-g GID_INDEX] SCENE            plays the responder
//   scenes [-d DEVICE] [-g GID_INDEX] SCENE ADDRESS    plays the requester
//   scenes                                             lists the scenes
//
// It prints completions and digests of memory, and no address, key or number that differs from run to
// run: two implementations that obey the specification print the same lines.

#include "device.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdbool.h>

#define MEMORY 32768u            // each side's region
#define QUEUE 16                 // work requests per queue
#define PORT "18520"
#define GRH 40u                  // bytes that a UD receive begins with
#define QKEY 0x22334455u
#define FIRST_PSN 0x000400u
#define TIMEOUT_S 12            // longer than any scene's timeouts add up to
#define QUIET_MS 300             // after which a receive that has not come will not come

enum actor { NOBODY, REQUESTER, RESPONDER };

// One work request of the requester.
struct act {
  enum ibv_wr_opcode what;
  unsigned bytes;                // from the start of the requester's memory
  unsigned where;                // offset in the responder's memory, for what goes there
  uint32_t immediate;
  unsigned flags;
  uint64_t first, second;        // operands: compare or add, then swap
  bool wrong_key;
};

struct scene {
  const char *name, *about;
  enum ibv_qp_type transport;
  int acts;
  struct act act[6];
  int receives;                  // that the responder posts
  unsigned receive_bytes;
  unsigned after_ms;             // when it posts them: 0 is beforehand
  int granted;                   // access to its region; 0 is everything
  int rnr_retries;               // of the requester; 0 means without end here, so -1 stands for none
  bool deaf;                     // the responder's queue pair is destroyed before the first act
  bool wrong_qkey;
  uint32_t first_psn;            // of the requester; 0 means FIRST_PSN
};

#define RC .transport = IBV_QPT_RC
#define UC .transport = IBV_QPT_UC
#define UD .transport = IBV_QPT_UD

static const struct scene scenes[] = {
  {"send_sizes", "SEND of 0, 1, 3, 1024 and 1025 bytes: padding, and one packet or two", RC, 5,
   {{IBV_WR_SEND}, {IBV_WR_SEND, 1}, {IBV_WR_SEND, 3}, {IBV_WR_SEND, 1024}, {IBV_WR_SEND, 1025}}, 5, 4096},
  {"send_immediate", "immediate data behind one packet and behind five", RC, 2,
   {{IBV_WR_SEND_WITH_IMM, 10, .immediate = 0xcafef00d},
    {IBV_WR_SEND_WITH_IMM, 5000, .immediate = 1, .flags = IBV_SEND_SOLICITED}}, 2, 8192},
  {"write_sizes", "WRITE of 0, 1, 1023, 1024 and 9001 bytes to odd places", RC, 5,
   {{IBV_WR_RDMA_WRITE, 0, 7}, {IBV_WR_RDMA_WRITE, 1, 9}, {IBV_WR_RDMA_WRITE, 1023, 101},
    {IBV_WR_RDMA_WRITE, 1024, 3001}, {IBV_WR_RDMA_WRITE, 9001, 12345}}},
  {"write_immediate", "WRITE with immediate data takes a receive, and none of its bytes", RC, 3,
   {{IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 5}, {IBV_WR_RDMA_WRITE_WITH_IMM, 33, 64, 6},
    {IBV_WR_RDMA_WRITE_WITH_IMM, 3000, 4096, 7}}, 3, 16},
  {"read_sizes", "READ of 0, 1, 1024 and 7777 bytes", RC, 4,
   {{IBV_WR_RDMA_READ, 0, 0}, {IBV_WR_RDMA_READ, 1, 50}, {IBV_WR_RDMA_READ, 1024, 999},
    {IBV_WR_RDMA_READ, 7777, 20001}}},
  {"read_then_send_fenced", "a fenced SEND leaves after the READ before it", RC, 2,
   {{IBV_WR_RDMA_READ, 4000, 0}, {IBV_WR_SEND, 4000, .flags = IBV_SEND_FENCE}}, 1, 4096},
  {"atomics", "FetchAdd twice, CmpSwap that hits and that misses: what was there before", RC, 4,
   {{IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 16, .first = 5}, {IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 16, .first = -5ull},
    {IBV_WR_ATOMIC_CMP_AND_SWP, 8, 16, .first = 0x1716151413121110, .second = 99},
    {IBV_WR_ATOMIC_CMP_AND_SWP, 8, 16, .first = 0, .second = 1}}},
  {"psn_wraps", "twelve packets whose sequence numbers pass from 0xffffff to 0", RC, 3,
   {{IBV_WR_RDMA_WRITE, 4100, 0}, {IBV_WR_RDMA_READ, 3000, 8192}, {IBV_WR_SEND, 3000}}, 1, 4096,
   .first_psn = 0xfffffb},
  {"receive_comes_late", "receiver not ready, then ready: the SEND succeeds", RC, 2,
   {{IBV_WR_SEND, 64}, {IBV_WR_SEND, 64}}, 2, 64, .after_ms = 150},
  {"receive_never_comes", "receiver not ready until the requester's retries are over", RC, 2,
   {{IBV_WR_SEND, 64}, {IBV_WR_SEND, 64}}, .rnr_retries = 1},
  {"nobody_answers", "the other queue pair is gone: retries, then the end, then a flush", RC, 2,
   {{IBV_WR_SEND, 64}, {IBV_WR_SEND, 64}}, .deaf = true},
  {"write_wrong_key", "a key that was never given: remote access error, and the next is flushed", RC, 3,
   {{IBV_WR_RDMA_WRITE, 64, 0}, {IBV_WR_RDMA_WRITE, 64, 64, .wrong_key = true}, {IBV_WR_RDMA_WRITE, 64,
     128}}},
  {"write_wrong_key_long", "the same in the first of several packets", RC, 1,
   {{IBV_WR_RDMA_WRITE, 9000, 64, .wrong_key = true}}},
  {"read_wrong_key", "the same for READ", RC, 1, {{IBV_WR_RDMA_READ, 64, 64, .wrong_key = true}}},
  {"atomic_wrong_key", "the same for FetchAdd", RC, 1,
   {{IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 64, .first = 1, .wrong_key = true}}},
  {"write_over_the_end", "a WRITE that begins within the region and ends beyond it", RC, 1,
   {{IBV_WR_RDMA_WRITE, 200, MEMORY - 100}}},
  {"read_over_the_end", "a READ that begins within the region and ends beyond it", RC, 1,
   {{IBV_WR_RDMA_READ, 200, MEMORY - 100}}},
  {"write_not_granted", "a WRITE to what may be read only", RC, 2,
   {{IBV_WR_RDMA_READ, 64, 0}, {IBV_WR_RDMA_WRITE, 64, 0}}, .granted = IBV_ACCESS_REMOTE_READ},
  {"read_not_granted", "a READ of what may be written only", RC, 2,
   {{IBV_WR_RDMA_WRITE, 64, 0}, {IBV_WR_RDMA_READ, 64, 0}},
   .granted = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
  {"atomic_not_granted", "a FetchAdd on what may be written", RC, 1,
   {{IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, .first = 1}},
   .granted = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
  {"atomic_misaligned", "a FetchAdd on an address that no multiple of 8 is", RC, 1,
   {{IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 20, .first = 1}}},
  {"send_too_long", "a SEND longer than the receive", RC, 1, {{IBV_WR_SEND, 300}}, 1, 100},
  {"send_too_long_later", "the same where the second of three packets is too much", RC, 1,
   {{IBV_WR_SEND, 2500}}, 1, 1500},
  {"uc_all", "UC: SEND and WRITE, with and without immediate data, short and long", UC, 4,
   {{IBV_WR_SEND, 77}, {IBV_WR_SEND_WITH_IMM, 2600, .immediate = 8}, {IBV_WR_RDMA_WRITE, 2600, 9000},
    {IBV_WR_RDMA_WRITE_WITH_IMM, 40, 16000, .immediate = 9}}, 3, 4096},
  {"ud_all", "UD: with and without immediate data, padded", UD, 3,
   {{IBV_WR_SEND, 5}, {IBV_WR_SEND_WITH_IMM, 6, .immediate = 0xabcdef}, {IBV_WR_SEND, 1024}}, 3, 2048},
  {"ud_wrong_qkey", "UD: a wrong Q_Key is dropped, and the sender does not learn of it", UD, 1,
   {{IBV_WR_SEND, 50}}, 1, 2048, .wrong_qkey = true},
};
#define SCENES (sizeof scenes / sizeof *scenes)

// What each side has to know of the other.
struct card { uint32_t qpn, psn, rkey; uint64_t memory; union ibv_gid gid; };

struct side {
  const struct scene *scene;
  enum actor actor;
  const char *device;
  int gid_index, peer;           // the peer is a TCP connection
  unsigned char *memory;
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct card mine, theirs;
};

static void wait_for_peer(const struct side *side) {
  char token = 0;
  exchange(side->peer, &token, &token, 1);
}

static void make_resources(struct side *side) {
  const int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;
  int granted = side->actor == RESPONDER && side->scene->granted ? side->scene->granted : everything;
  side->context = open_device(side->device);
  side->memory = have(aligned_alloc(4096, MEMORY), "memory");
  for (unsigned i = 0; i < MEMORY; i++) side->memory[i] = side->actor == REQUESTER ? i % 241 + 7 : i;
  side->pd = have(ibv_alloc_pd(side->context), "ibv_alloc_pd");
  side->mr = have(ibv_reg_mr(side->pd, side->memory, MEMORY, granted), "ibv_reg_mr");
  side->cq = have(ibv_create_cq(side->context, 2 * QUEUE, NULL, NULL, 0), "ibv_create_cq");
  struct ibv_qp_init_attr attributes = {.send_cq = side->cq, .recv_cq = side->cq,
    .qp_type = side->scene->transport,
    .cap = {.max_send_wr = QUEUE, .max_recv_wr = QUEUE, .max_send_sge = 1, .max_recv_sge = 1}};
  side->qp = have(ibv_create_qp(side->pd, &attributes), "ibv_create_qp");
  side->mine = (struct card){side->qp->qp_num, FIRST_PSN, side->mr->rkey, (uintptr_t)side->memory, {{0}}};
  if (side->actor == REQUESTER && side->scene->first_psn) side->mine.psn = side->scene->first_psn;
  done(ibv_query_gid(side->context, 1, side->gid_index, &side->mine.gid), "ibv_query_gid");
}

static struct ibv_ah_attr address_of_peer(const struct side *side) {
  return (struct ibv_ah_attr){.is_global = 1, .port_num = 1,
    .grh = {.dgid = side->theirs.gid, .sgid_index = side->gid_index, .hop_limit = 32}};
}

static void connect_queue_pair(struct side *side) {
  const bool rc = side->scene->transport == IBV_QPT_RC, ud = side->scene->transport == IBV_QPT_UD;
  int rnr = side->scene->rnr_retries;
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  done(ibv_modify_qp(side->qp, &to, mask), "RESET to INIT");

  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
    .dest_qp_num = side->theirs.qpn,
    .rq_psn = side->theirs.psn, .max_dest_rd_atomic = 2, .min_rnr_timer = 20 /* 10.24 ms */,
    .ah_attr = address_of_peer(side)};
  mask = IBV_QP_STATE;
  if (!ud) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  done(ibv_modify_qp(side->qp, &to, mask), "INIT to RTR");

  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = side->mine.psn, .timeout = 15 /* 134 ms */,
    .retry_cnt = 3, .rnr_retry = rnr < 0 ? 0 : rnr ? rnr : 7, .max_rd_atomic = 2};
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  done(ibv_modify_qp(side->qp, &to, mask), "RTR to RTS");
}

static bool next_completion(struct side *side, struct ibv_wc *wc, long ms) {
  for (long end = now_ms() + ms; now_ms() <= end; sleep_ms(1)) {
    int count = ibv_poll_cq(side->cq, 1, wc);
    if (count < 0) fail("ibv_poll_cq gave %d", count);
    if (count) return true;
  }
  return false;
}

static bool is_atomic(const struct act *act) {
  return act->what == IBV_WR_ATOMIC_CMP_AND_SWP || act->what == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int post(struct side *side, const struct act *act, int number, struct ibv_ah *ah) {
  struct ibv_sge piece = {(uintptr_t)side->memory, act->bytes, side->mr->lkey};
  struct ibv_send_wr *bad, wr = {.wr_id = number, .sg_list = &piece, .num_sge = act->bytes != 0,
    .opcode = act->what, .send_flags = IBV_SEND_SIGNALED | act->flags, .imm_data = htonl(act->immediate)};
  uint64_t there = side->theirs.memory + act->where;
  uint32_t key = side->theirs.rkey ^ (act->wrong_key ? 0xabcd00 : 0);
  if (ah) {
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = side->theirs.qpn;
    wr.wr.ud.remote_qkey = side->scene->wrong_qkey ? QKEY + 1 : QKEY;
  } else if (is_atomic(act)) {
    wr.wr.atomic.remote_addr = there;
    wr.wr.atomic.rkey = key;
    wr.wr.atomic.compare_add = act->first;
    wr.wr.atomic.swap = act->second;
  } else {
    wr.wr.rdma.remote_addr = there;
    wr.wr.rdma.rkey = key;
  }
  return ibv_post_send(side->qp, &wr, &bad);
}

static void play_requester(struct side *side) {
  struct ibv_ah *ah = NULL;
  if (side->scene->transport == IBV_QPT_UD) {
    struct ibv_ah_attr address = address_of_peer(side);
    ah = have(ibv_create_ah(side->pd, &address), "ibv_create_ah");
  }
  for (int i = 0; i < side->scene->acts; i++) {
    const struct act *act = &side->scene->act[i];
    struct ibv_wc wc;
    int refused = post(side, act, i, ah);
    if (refused) printf("request %d: refused, %s\n", i, strerror(refused));
    else if (!next_completion(side, &wc, TIMEOUT_S * 1000)) printf("request %d: nothing\n", i);
    else {
      printf("request %d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status));
      if (!wc.status && is_atomic(act)) printf(", was %016llx", *(unsigned long long *)side->memory);
      putchar('\n');
    }
  }
  if (ah) done(ibv_destroy_ah(ah), "ibv_destroy_ah");
}

static void post_receives(struct side *side) {
  // Each has a place of its own in the upper half, so that what went where shows in the digest.
  const unsigned extra = side->scene->transport == IBV_QPT_UD ? GRH : 0;
  unsigned place = MEMORY / 2;
  for (int i = 0; i < side->scene->receives; i++, place += MEMORY / 2 / QUEUE / 2) {
    struct ibv_sge piece = {(uintptr_t)side->memory + place, side->scene->receive_bytes + extra,
      side->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &piece, .num_sge = 1};
    done(ibv_post_recv(side->qp, &wr, &bad), "ibv_post_recv");
  }
}

static void print_receives(struct side *side) {
  struct ibv_wc wc;
  for (int i = 0; i < side->scene->receives && next_completion(side, &wc, QUIET_MS); i++) {
    printf("receive %d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status));
    if (!wc.status) printf(", %u bytes", wc.byte_len);
    if (!wc.status && wc.wc_flags & IBV_WC_WITH_IMM) printf(", immediate %x", ntohl(wc.imm_data));
    putchar('\n');
  }
}

static void print_memory(const struct side *side) {
  // The GRH that a UD receive begins with holds addresses: it is left out.
  const unsigned place = MEMORY / 2 / QUEUE / 2;
  const bool ud = side->scene->transport == IBV_QPT_UD;
  uint64_t digest = 0;
  for (unsigned i = 0; i < MEMORY; i++)
    if (!(ud && i >= MEMORY / 2 && i % place < GRH))
      digest = digest * 0x5851f42d4c957f2d + side->memory[i] + 1;
  printf("memory: %016llx\n", (unsigned long long)digest);
}

static void play_responder(struct side *side) {
  if (side->scene->after_ms) {
    sleep_ms(side->scene->after_ms);
    post_receives(side);
  }
  wait_for_peer(side);           // the requester has what it will get
  print_receives(side);
}

static void play(struct side *side) {
  make_resources(side);
  exchange(side->peer, &side->mine, &side->theirs, sizeof side->mine);
  connect_queue_pair(side);
  if (side->actor == RESPONDER && !side->scene->after_ms) post_receives(side);
  if (side->actor == RESPONDER && side->scene->deaf) {
    done(ibv_destroy_qp(side->qp), "ibv_destroy_qp");
    side->qp = NULL;
  }
  wait_for_peer(side);           // both are ready
  if (side->actor == REQUESTER) {
    play_requester(side);
    wait_for_peer(side);
  } else {
    play_responder(side);
  }
  print_memory(side);
  if (side->qp) done(ibv_destroy_qp(side->qp), "ibv_destroy_qp");
  done(ibv_destroy_cq(side->cq), "ibv_destroy_cq");
  done(ibv_dereg_mr(side->mr), "ibv_dereg_mr");
  done(ibv_dealloc_pd(side->pd), "ibv_dealloc_pd");
  done(ibv_close_device(side->context), "ibv_close_device");
  free(side->memory);
}

int main(int argc, char **argv) {
  struct side side = {.gid_index = 1};
  for (int option; (option = getopt(argc, argv, "d:g:")) != -1;) {
    if (option == 'd') side.device = optarg;
    else if (option == 'g') side.gid_index = atoi(optarg);
    else return 2;
  }
  if (optind == argc) {
    for (size_t i = 0; i < SCENES; i++) printf("%-24s %s\n", scenes[i].name, scenes[i].about);
    return 0;
  }
  for (size_t i = 0; i < SCENES; i++)
    if (!strcmp(scenes[i].name, argv[optind])) side.scene = &scenes[i];
  if (!side.scene) fail("no scene is called %s", argv[optind]);
  const char *host = argv[optind + 1];
  side.actor = host ? REQUESTER : RESPONDER;
  side.peer = meet(host, PORT);
  play(&side);
  close(side.peer);
  return 0;
}
