// datagrams CASE: two queue pairs of one process whose messages can be lost without an error, or that take
// receives of a shared queue, and one mistake that programs make. CASE is a type (`ud`, `uc` or `srq`) for
// none, or the name of a mistake below, which begins with the type; prints the statuses of completions.
#include "device.h"

#include <errno.h>

#define BYTES 256

struct end {
  struct ibv_cq *cq;
  struct ibv_srq *srq;
  struct ibv_qp *qp;
  struct ibv_mr *mr;
  char memory[8192];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int gid_index;
static struct end ends[2];
static const char *mistake;
static enum ibv_qp_type type;

static int is(const char *name) { return !strcmp(mistake, name); }
static int is_of(const char *name) { return !strncmp(mistake, name, strlen(name)); }

static void make(struct end *end, int is_second) {
  end->cq = have(ibv_create_cq(context, 32, NULL, NULL, 0), "ibv_create_cq");
  int access = IBV_ACCESS_LOCAL_WRITE | (is("uc-access") ? 0 : IBV_ACCESS_REMOTE_WRITE);
  end->mr = have(ibv_reg_mr(pd, end->memory, sizeof end->memory, access), "ibv_reg_mr");
  if (is_of("srq") && is_second) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    end->srq = have(ibv_create_srq(pd, &init), "ibv_create_srq");
  }
  struct ibv_qp_init_attr init = {.send_cq = end->cq, .recv_cq = end->cq, .srq = end->srq, .qp_type = type,
                                  .cap = {8, 8, 1, 1, 0}};
  end->qp = have(ibv_create_qp(pd, &init), "ibv_create_qp");
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = is_second ? 0x22 : 0x11,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  mask |= type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(end->qp, &attr, mask), "INIT");
}

static void join(struct end *end, struct end *to) {
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .rq_psn = 7,
      .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
      .ah_attr = {.is_global = 1, .port_num = 1,
                  .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
  int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  int acknowledged = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  int mask = type == IBV_QPT_UD ? 0 : type == IBV_QPT_UC ? path : path | acknowledged;
  done(ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | mask), "RTR");
  struct ibv_qp_attr rts = {
      .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 10, .retry_cnt = 1, .rnr_retry = 1};
  const int retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN | (type == IBV_QPT_RC ? retries : 0);
  done(ibv_modify_qp(end->qp, &rts, mask), "RTS");
}

static struct ibv_ah *handle(void) {
  union ibv_gid to = gid;
  if (is("ud-gid")) to.raw[15] = 77;
  // The receiver answers, and so its own address is in the trace.
  struct ibv_ah_attr back = {.is_global = 1, .port_num = 1,
                             .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}};
  have(ibv_create_ah(pd, &back), "ibv_create_ah");
  struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1,
                             .grh = {.dgid = to, .sgid_index = gid_index, .hop_limit = 64}};
  return have(ibv_create_ah(pd, &attr), "ibv_create_ah");
}

static void send_message(struct ibv_ah *ah, unsigned bytes) {
  struct ibv_sge sge = {(uintptr_t)ends[0].memory, bytes, ends[0].mr->lkey};
  struct ibv_send_wr *bad, wr = {.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED};
  if (is_of("uc-access") || is("uc-range")) {
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = (uintptr_t)ends[1].memory + (is("uc-range") ? sizeof ends[1].memory : 0);
    wr.wr.rdma.rkey = ends[1].mr->rkey;
  }
  if (type == IBV_QPT_UD) {
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = ends[1].qp->qp_num;
    wr.wr.ud.remote_qkey = is("ud-qkey") ? 0x33 : 0x22;
  }
  done(ibv_post_send(ends[0].qp, &wr, &bad), "ibv_post_send");
}

static void receive(unsigned bytes) {
  struct ibv_sge sge = {(uintptr_t)ends[1].memory, bytes, ends[1].mr->lkey};
  struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};
  if (is("srq-receive-queue")) {
    printf("ibv_post_recv: %s\n", strerrorname_np(ibv_post_recv(ends[1].qp, &wr, &bad)));
  }
  if (ends[1].srq) done(ibv_post_srq_recv(ends[1].srq, &wr, &bad), "ibv_post_srq_recv");
  else done(ibv_post_recv(ends[1].qp, &wr, &bad), "ibv_post_recv");
}

// Takes a completion of an end; returns whether there is one within the time.
static int take(struct end *end, int milliseconds) {
  for (long begin = now_ms(); now_ms() - begin < milliseconds;) {
    struct ibv_wc wc;
    int found = ibv_poll_cq(end->cq, 1, &wc);
    if (found < 0) fail("ibv_poll_cq: %d", found);
    if (found) return printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status)), 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 2) fail("datagrams CASE");
  mistake = argv[1];
  type = is_of("ud") ? IBV_QPT_UD : is_of("uc") ? IBV_QPT_UC : IBV_QPT_RC;
  alarm(30);
  context = open_device(NULL);
  while (ibv_query_gid(context, 1, gid_index, &gid) || memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12))
    gid_index++;
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  make(&ends[0], 0), make(&ends[1], 1);
  join(&ends[0], &ends[1]), join(&ends[1], &ends[0]);
  struct ibv_ah *ah = type == IBV_QPT_UD ? handle() : NULL;
  unsigned header = type == IBV_QPT_UD && !is("ud-grh") ? 40 : 0;
  unsigned bytes = is("ud-long") ? sizeof ends[0].memory : BYTES;
  int is_write = is_of("uc-access") || is("uc-range");
  if (!is("ud-receive") && !is("uc-receive") && !is("srq-empty") && !is_write)
    receive(is("uc-short") || is("srq-short") ? BYTES / 2 : header + BYTES);
  send_message(ah, bytes);
  if (!take(&ends[0], 20000)) fail("no completion");
  int arrives = is("ud") || is("uc") || is("uc-late") || is("srq");
  if (is("srq-short") || is("srq-receive-queue")) arrives = 1;
  if (take(&ends[1], arrives ? 20000 : 50) != arrives) fail("receives: not as expected");
  if (is("uc-late")) {
    send_message(ah, bytes);
    if (!take(&ends[0], 20000)) fail("no completion");
    // The poll takes the message from the network.
    if (take(&ends[1], 50)) fail("receives without a receive");
    receive(BYTES);
    if (take(&ends[1], 50)) fail("receives what came before the receive");
  }
  for (int i = 0; i < 2; i++) done(ibv_destroy_qp(ends[i].qp), "ibv_destroy_qp");
  return 0;
}
