// injected CASE COUNT: two RC queue pairs of one process, the requests of one, and what comes of them: a line
// for each call that fails, each completion, the last state of both and the first event. CASE is
//   list      COUNT RDMA WRITEs in one list
//   extended  the same by ibv_wr_start and ibv_wr_complete
//   single    COUNT RDMA WRITEs, one by one; those that are refused are not repeated
//   step      the same, each after the completion of the one before
//   event     as single, waiting for completion events
//   cancel    ibv_get_cq_event in a thread that is cancelled, and then COUNT RDMA WRITEs as by single
//   receive   COUNT SENDs to as many receives
//   rnr       a SEND to a receive, with an rnr_retry of COUNT
//   expire    two RDMA WRITEs, the second COUNT ms later, and then the memory of both ends is deregistered
//   pages     on-demand memory of two pages: an RDMA WRITE from and to each, from the page COUNT on
#include "device.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define MOST 64

struct end {
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct ibv_mr *mr;
  char memory[8192] __attribute__((aligned(4096)));
};

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int gid_index;
static struct end ends[2];
static int rnr_retry = 7, access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

static const char *state(struct ibv_qp *qp) {
  static const char *names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  done(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
  return names[attr.qp_state];
}

static void make(struct end *end) {
  end->cq = have(ibv_create_cq(context, 2 * MOST, NULL, channel, 0), "ibv_create_cq");
  end->mr = have(ibv_reg_mr(pd, end->memory, sizeof end->memory, access_flags), "ibv_reg_mr");
  struct ibv_qp_init_attr_ex init = {
      .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .pd = pd, .sq_sig_all = 1,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE, .cap = {MOST, MOST, 1, 1, 0}};
  end->qp = have(ibv_create_qp_ex(context, &init), "ibv_create_qp_ex");
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(end->qp, &attr, mask), "INIT");
}

static void join(struct end *end, struct end *to) {
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .rq_psn = 7,
      .max_dest_rd_atomic = 1, .min_rnr_timer = 14,
      .ah_attr = {.is_global = 1, .port_num = 1,
                  .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
  done(ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
  struct ibv_qp_attr rts = {
      .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry,
      .max_rd_atomic = 1};
  done(ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

// Where requests read and write.
static size_t offset;

// Posts a list of so many requests; returns how many were posted.
static int post(enum ibv_wr_opcode opcode, int first, int count) {
  struct ibv_sge sges[MOST];
  struct ibv_send_wr wrs[MOST], *bad = NULL;
  for (int i = 0; i < count; i++) {
    sges[i] = (struct ibv_sge){(uintptr_t)ends[0].memory + offset, 8, ends[0].mr->lkey};
    wrs[i] = (struct ibv_send_wr){
        .wr_id = first + i, .next = i + 1 < count ? &wrs[i + 1] : NULL, .sg_list = &sges[i], .num_sge = 1,
        .opcode = opcode,
        .wr.rdma = {.remote_addr = (uintptr_t)ends[1].memory + offset, .rkey = ends[1].mr->rkey}};
  }
  int error = ibv_post_send(ends[0].qp, wrs, &bad);
  if (!error) return count;
  printf("ibv_post_send: %s at %d\n", strerrorname_np(error), (int)bad->wr_id);
  return bad - wrs;
}

static int post_extended(int count) {
  struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(ends[0].qp);
  ibv_wr_start(qp);
  for (int i = 0; i < count; i++) {
    qp->wr_id = i;
    ibv_wr_rdma_write(qp, ends[1].mr->rkey, (uintptr_t)ends[1].memory);
    ibv_wr_set_sge(qp, ends[0].mr->lkey, (uintptr_t)ends[0].memory, 8);
  }
  int error = ibv_wr_complete(qp);
  if (!error) return count;
  printf("ibv_wr_complete: %s\n", strerrorname_np(error));
  return 0;
}

static void wait_for_event(void) {
  struct ibv_cq *cq;
  void *cookie;
  done(ibv_get_cq_event(channel, &cq, &cookie), "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
  done(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

static void take(struct end *end, const char *name, int count, int by_events) {
  while (count > 0) {
    struct ibv_wc wc;
    int found = ibv_poll_cq(end->cq, 1, &wc);
    if (found < 0) fail("ibv_poll_cq: %s", strerrorname_np(-found));
    if (found == 0 && by_events) wait_for_event();
    if (found == 0) continue;
    printf("%s %d: %s\n", name, (int)wc.wr_id, ibv_wc_status_str(wc.status));
    count--;
  }
}

static void post_receives(int count) {
  struct ibv_sge sge = {(uintptr_t)ends[1].memory, 8, ends[1].mr->lkey};
  for (int i = 0; i < count; i++) {
    struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
    int error = ibv_post_recv(ends[1].qp, &wr, &bad);
    if (error) printf("ibv_post_recv: %s at %d\n", strerrorname_np(error), i);
  }
}

static void *wait_in_thread(void *unused) {
  struct ibv_cq *cq;
  void *cookie;
  ibv_get_cq_event(channel, &cq, &cookie);
  return unused;
}

static void cancel_a_wait(void) {
  pthread_t thread;
  void *result = NULL;
  done(pthread_create(&thread, NULL, wait_in_thread, NULL), "pthread_create");
  sleep_ms(100);
  done(pthread_cancel(thread), "pthread_cancel");
  done(pthread_join(thread, &result), "pthread_join");
  printf("thread: %s\n", result == PTHREAD_CANCELED ? "cancelled" : "returned");
}

int main(int argc, char **argv) {
  if (argc != 3) fail("injected CASE COUNT");
  const char *what = argv[1];
  int count = atoi(argv[2]), by_events = !strcmp(what, "event"), posted = 0;
  if (!strcmp(what, "rnr")) rnr_retry = count;
  if (!strcmp(what, "pages")) access_flags |= IBV_ACCESS_ON_DEMAND;
  alarm(30);
  context = open_device(NULL);
  while (ibv_query_gid(context, 1, gid_index, &gid) ||
         memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12))
    gid_index++;
  channel = have(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  make(&ends[0]), make(&ends[1]);
  join(&ends[0], &ends[1]), join(&ends[1], &ends[0]);
  if (by_events) done(ibv_req_notify_cq(ends[0].cq, 0), "ibv_req_notify_cq");
  if (!strcmp(what, "cancel")) cancel_a_wait();
  if (!strcmp(what, "list")) {
    posted = post(IBV_WR_RDMA_WRITE, 0, count);
  } else if (!strcmp(what, "extended")) {
    posted = post_extended(count);
  } else if (!strcmp(what, "receive")) {
    post_receives(count);
    posted = post(IBV_WR_SEND, 0, count);
    take(&ends[1], "receive", count, 0);
  } else if (!strcmp(what, "rnr")) {
    post_receives(1);
    posted = post(IBV_WR_SEND, 0, 1);
  } else if (!strcmp(what, "expire")) {
    take(&ends[0], "send", post(IBV_WR_RDMA_WRITE, 0, 1), 0);
    sleep_ms(count);
    take(&ends[0], "send", post(IBV_WR_RDMA_WRITE, 1, 1), 0);
    for (int i = 0; i < 2; i++) done(ibv_dereg_mr(ends[i].mr), "ibv_dereg_mr");
  } else if (!strcmp(what, "pages")) {
    for (int page = count; page < 2; page++) {
      offset = page * 4096;
      take(&ends[0], "send", post(IBV_WR_RDMA_WRITE, page, 1), 0);
    }
  } else if (!strcmp(what, "step")) {
    for (int i = 0; i < count; i++) take(&ends[0], "send", post(IBV_WR_RDMA_WRITE, i, 1), 0);
  } else {
    for (int i = 0; i < count; i++) posted += post(IBV_WR_RDMA_WRITE, i, 1);
  }
  take(&ends[0], "send", posted, by_events);
  const char *first = state(ends[0].qp), *second = state(ends[1].qp);
  printf("states: %s %s\n", first, second);
  // The first event that has come, if any has.
  struct pollfd polled = {context->async_fd, POLLIN, 0};
  struct ibv_async_event event;
  if (poll(&polled, 1, 0) == 1) {
    done(ibv_get_async_event(context, &event), "ibv_get_async_event");
    printf("event: %s\n", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
  }
  return 0;
}
