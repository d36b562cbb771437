// mistakes CASE: two RC queue pairs of one process, and one mistake that programs make. CASE is `none` for
// none, or the name of a mistake below; prints the statuses of the completions that are polled.
#include "device.h"

#include <errno.h>

#define DEPTH 8
#define BYTES 4096

struct end {
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct ibv_mr *mr;
  char memory[2 * BYTES];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int gid_index;
static struct end ends[2];
static const char *mistake;

static int is(const char *name) { return !strcmp(mistake, name); }

// The index of the first IPv4 address, or of another one.
static int ipv4_index(const union ibv_gid *but) {
  union ibv_gid found;
  for (int index = 0; !ibv_query_gid(context, 1, index, &found); index++)
    if (!memcmp(found.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) && (!but || memcmp(but, &found, sizeof found)))
      return index;
  fail("no such GID");
}

static void make(struct end *end, int is_second) {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  end->cq = have(ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0), "ibv_create_cq");
  if (is_second && is("region-access")) access = IBV_ACCESS_LOCAL_WRITE;
  if (is_second && is("receive-access")) access = 0;
  if (is_second && is("registration")) {
    if (ibv_reg_mr(pd, end->memory, BYTES, IBV_ACCESS_REMOTE_WRITE)) fail("it was registered");
    printf("ibv_reg_mr: %s\n", strerrorname_np(errno));
  }
  end->mr = have(ibv_reg_mr(pd, end->memory, BYTES, access), "ibv_reg_mr");
  struct ibv_qp_init_attr init = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
                                  .cap = {DEPTH, DEPTH, 1, 1, 0}};
  end->qp = have(ibv_create_qp(pd, &init), "ibv_create_qp");
  if (is_second && is("transition")) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    printf("ibv_modify_qp: %s\n", strerrorname_np(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE)));
  }
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  if (is_second && is("queue-access")) attr.qp_access_flags = 0;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(end->qp, &attr, mask), "INIT");
}

static void join(struct end *end, struct end *to, int is_second) {
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .rq_psn = 7,
      .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
      .ah_attr = {.is_global = 1, .port_num = 1,
                  .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (is_second && is("mtu")) rtr.path_mtu = IBV_MTU_2048;
  if (is_second && is("gid")) rtr.ah_attr.grh.sgid_index = ipv4_index(&gid);
  if (is_second && is("psn")) rtr.rq_psn = 8;
  if (is_second && is("attributes")) {
    int error = ibv_modify_qp(end->qp, &rtr, mask & ~IBV_QP_MIN_RNR_TIMER);
    printf("ibv_modify_qp: %s\n", strerrorname_np(error));
  }
  done(ibv_modify_qp(end->qp, &rtr, mask), "RTR");
  struct ibv_qp_attr rts = {
      .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 10, .retry_cnt = 1,
      .rnr_retry = is("waits-for-receive") ? 7 : 1, .max_rd_atomic = 1};
  done(ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static int post(enum ibv_wr_opcode opcode, int wr_id, size_t at, unsigned bytes, int flags) {
  struct ibv_sge sge = {(uintptr_t)ends[0].memory + at, bytes, ends[0].mr->lkey};
  struct ibv_send_wr *bad, wr = {
      .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags,
      .wr.rdma = {.remote_addr = (uintptr_t)ends[1].memory, .rkey = ends[1].mr->rkey}};
  if (is("range")) wr.wr.rdma.remote_addr += BYTES;
  if (is("remote-key")) wr.wr.rdma.rkey ^= 0x5a5a;
  if (is("local-key")) sge.lkey ^= 0x5a5a;
  return ibv_post_send(ends[0].qp, &wr, &bad);
}

static void receive(int wr_id, unsigned bytes) {
  struct ibv_sge sge = {(uintptr_t)ends[1].memory, bytes, ends[1].mr->lkey};
  struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
  done(ibv_post_recv(ends[1].qp, &wr, &bad), "ibv_post_recv");
}

// Takes so many completions of an end.
static void take(struct end *end, int count) {
  for (long begin = now_ms(); count > 0;) {
    struct ibv_wc wc;
    int found = ibv_poll_cq(end->cq, 1, &wc);
    if (found < 0) fail("ibv_poll_cq: %d", found);
    if (found) printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status)), count--;
    if (now_ms() - begin > 20000) fail("no completion");
  }
}

// Posts until the queue is full.
static void fill(int flags) {
  int error = 0, posted = 0;
  while (!error && posted < 100) error = post(IBV_WR_RDMA_WRITE, posted++, 0, 8, flags);
  printf("ibv_post_send: %s\n", strerrorname_np(error));
}

static void work(void) {
  const int signaled = IBV_SEND_SIGNALED;
  if (is("no-receive")) {
    done(post(IBV_WR_SEND, 3, 0, 8, signaled), "ibv_post_send");
    take(&ends[0], 1);
  } else if (is("waits-for-receive")) {
    done(post(IBV_WR_SEND, 3, 0, 8, signaled), "ibv_post_send");
    sleep_ms(50);
  } else if (is("short-receive") || is("receive-access")) {
    receive(1, 8);
    done(post(IBV_WR_SEND, 3, 0, is("short-receive") ? 64 : 8, signaled), "ibv_post_send");
    take(&ends[1], 1), take(&ends[0], 1);
  } else if (is("never-polled")) {
    fill(signaled);
  } else if (is("never-polled-at-the-end")) {
    for (int i = 0; i < 3; i++) done(post(IBV_WR_RDMA_WRITE, i, 0, 8, signaled), "ibv_post_send");
  } else if (is("never-signaled")) {
    fill(0);
  } else if (is("deregistered")) {
    done(post(IBV_WR_RDMA_WRITE, 3, 0, BYTES, signaled), "ibv_post_send");
    done(ibv_dereg_mr(ends[0].mr), "ibv_dereg_mr");
    take(&ends[0], 1);
  } else if (is("peer-deregistered")) {
    struct ibv_mr *mr = ends[1].mr;
    unsigned rkey = mr->rkey;
    done(ibv_dereg_mr(mr), "ibv_dereg_mr");
    struct ibv_mr stale = {.rkey = rkey};
    ends[1].mr = &stale;
    done(post(IBV_WR_RDMA_WRITE, 3, 0, 8, signaled), "ibv_post_send");
    take(&ends[0], 1);
  } else if (is("wr-id")) {
    for (int i = 0; i < 4; i++)
      done(post(IBV_WR_RDMA_WRITE, i % 3, i * 8, 8, signaled), "ibv_post_send");
    take(&ends[0], 4);
  } else {
    receive(1, 64);
    done(post(IBV_WR_RDMA_WRITE, 3, 0, 8, signaled), "ibv_post_send");
    take(&ends[0], 1);
    if (is("none")) {
      done(post(IBV_WR_RDMA_READ, 4, 0, 8, signaled), "ibv_post_send");
      done(post(IBV_WR_SEND, 5, 0, 8, signaled), "ibv_post_send");
      take(&ends[0], 2), take(&ends[1], 1);
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 2) fail("mistakes CASE");
  mistake = argv[1];
  alarm(30);
  context = open_device(NULL);
  gid_index = ipv4_index(NULL);
  done(ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  make(&ends[0], 0), make(&ends[1], 1);
  if (is("state")) {
    printf("ibv_post_send: %s\n", strerrorname_np(post(IBV_WR_RDMA_WRITE, 3, 0, 8, IBV_SEND_SIGNALED)));
    return 0;
  }
  join(&ends[0], &ends[1], 0), join(&ends[1], &ends[0], 1);
  work();
  if (!is("waits-for-receive")) {
    for (int i = 0; i < 2; i++) done(ibv_destroy_qp(ends[i].qp), "ibv_destroy_qp");
  }
  return 0;
}
