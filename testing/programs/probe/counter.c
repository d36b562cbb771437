// counter: one word that four programs count with RDMA atomics, and its owner with the processor's.
//
//   counter [-d DEVICE] [-g GID_INDEX]
//
// Two of the programs add, two compare and swap until they win; the owner does both in two threads. Each
// keeps the values that it found. Every number up to the total has to be found exactly once: two that saw the
// same one would have counted once between them.

#include "meeting.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define ASKERS 4u
#define THREADS 2u
#define COUNTS 3000u             // of each asker
#define OWN_COUNTS 200000u       // of each thread
#define TOTAL (ASKERS * COUNTS + THREADS * OWN_COUNTS)
#define TIMEOUT_MS 60000

struct card { uint32_t qpn, rkey; uint64_t word; union ibv_gid gid; };

static const char *device_name;
static int gid_index = 1;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
// In memory that all processes have: how many found each value.
static unsigned char *found;

static void note(uint64_t value) {
  if (value >= TOTAL) fail("the word was %llu: more than was counted", (unsigned long long)value);
  if (__atomic_fetch_add(&found[value], 1, __ATOMIC_RELAXED)) fail("two found %llu",
                                                                   (unsigned long long)value);
}

static void open_device(void) {
  struct ibv_device **list = have(ibv_get_device_list(NULL), "devices"), *device = NULL;
  for (int i = 0; list[i]; i++)
    if (!device_name || !strcmp(device_name, ibv_get_device_name(list[i]))) device = list[i];
  context = have(ibv_open_device(have(device, "the device")), "ibv_open_device");
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  cq = have(ibv_create_cq(context, 64, NULL, NULL, 0), "ibv_create_cq");
}

static struct ibv_qp *make_qp(struct card *mine) {
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
    .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp *qp = have(ibv_create_qp(pd, &init), "ibv_create_qp");
  done(ibv_query_gid(context, 1, gid_index, &mine->gid), "ibv_query_gid");
  mine->qpn = qp->qp_num;
  return qp;
}

static void join(struct ibv_qp *qp, const struct card *peer) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC};
  done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
       "INIT");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn,
    .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
    .ah_attr = {.is_global = 1, .port_num = 1,
                .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}}};
  done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 7, .max_rd_atomic = 4};
  done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

// One atomic, and what was there before it.
static uint64_t ask(struct ibv_qp *qp, const struct card *peer, struct ibv_mr *mr, bool swap,
                    uint64_t expected) {
  uint64_t *before = mr->addr;
  struct ibv_sge piece = {(uintptr_t)before, sizeof *before, mr->lkey};
  struct ibv_send_wr *bad, wr = {.sg_list = &piece, .num_sge = 1,
    .opcode = swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD};
  wr.wr.atomic.remote_addr = peer->word;
  wr.wr.atomic.rkey = peer->rkey;
  wr.wr.atomic.compare_add = swap ? expected : 1;
  wr.wr.atomic.swap = expected + 1;
  done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
  struct ibv_wc wc;
  for (const long end = now_ms() + TIMEOUT_MS; !ibv_poll_cq(cq, 1, &wc); )
    if (now_ms() > end) fail("no completion");
  if (wc.status) fail("%s", ibv_wc_status_str(wc.status));
  return *before;
}

static int asker(unsigned number, int to_owner) {
  open_device();
  static uint64_t before;
  struct ibv_mr *mr = have(ibv_reg_mr(pd, &before, sizeof before, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
  struct card mine = {0}, peer;
  struct ibv_qp *qp = make_qp(&mine);
  exchange(to_owner, &mine, &peer, sizeof mine);
  join(qp, &peer);
  char token = 0;
  exchange(to_owner, &token, &token, 1);
  uint64_t expected = 0;
  for (unsigned i = 0; i < COUNTS; i++) {
    if (number % 2 == 0) {
      note(ask(qp, &peer, mr, false, 0));
      continue;
    }
    for (;;) {
      uint64_t was = ask(qp, &peer, mr, true, expected);
      bool won = was == expected;
      if (won) note(was);
      expected = was + won;
      if (won) break;
    }
  }
  return 0;
}

static uint64_t word __attribute__((aligned(8)));

static void *own_thread(void *number) {
  for (unsigned i = 0; i < OWN_COUNTS; i++) {
    uint64_t was = __atomic_load_n(&word, __ATOMIC_RELAXED);
    const int order = __ATOMIC_SEQ_CST;
    if (!number) was = __atomic_fetch_add(&word, 1, order);
    else while (!__atomic_compare_exchange_n(&word, &was, was + 1, false, order, order)) {}
    note(was);
    // The others are slower: they count between ours, and not after them.
    if (i % 64 == 0) sched_yield();
  }
  return NULL;
}

int main(int argc, char **argv) {
  for (int option; (option = getopt(argc, argv, "d:g:")) != -1; )
    if (option == 'd') device_name = optarg;
    else if (option == 'g') gid_index = atoi(optarg);
    else return 2;
  found = mmap(NULL, TOTAL, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) fail("mmap: %s", strerror(errno));
  int ends[ASKERS][2];
  pid_t askers[ASKERS];
  // Before a device is open: each process opens its own.
  for (unsigned i = 0; i < ASKERS; i++) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i])) fail("socketpair: %s", strerror(errno));
    askers[i] = fork();
    if (!askers[i]) return asker(i, ends[i][1]);
  }
  open_device();
  const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  struct ibv_mr *mr = have(ibv_reg_mr(pd, &word, sizeof word, rights), "ibv_reg_mr");
  for (unsigned i = 0; i < ASKERS; i++) {
    struct card mine = {.rkey = mr->rkey, .word = (uintptr_t)&word}, peer;
    struct ibv_qp *qp = make_qp(&mine);
    exchange(ends[i][0], &mine, &peer, sizeof mine);
    join(qp, &peer);
  }
  char token = 0;
  for (unsigned i = 0; i < ASKERS; i++) exchange(ends[i][0], &token, &token, 1);
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, own_thread, (void *)i);
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (unsigned i = 0; i < ASKERS; i++) {
    int status = 0;
    if (waitpid(askers[i], &status, 0) != askers[i] || status) fail("asker %u ended with %d", i, status);
  }
  if (word != TOTAL) fail("%llu, not %u", (unsigned long long)word, TOTAL);
  for (unsigned i = 0; i < TOTAL; i++)
    if (found[i] != 1) fail("no program found %u", i);
  printf("%u counted by %u programs and %u threads, each once\n", TOTAL, ASKERS, THREADS);
  return 0;
}
