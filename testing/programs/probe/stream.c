// stream: one queue pair that is kept busy until a fault occurs, and the completions and events that follow.
//
//   stream [-d DEVICE] [-g GID_INDEX] HOW                         serves
//   stream [-d DEVICE] [-g GID_INDEX] [-t TIMEOUT] HOW ADDRESS    asks
//
// HOW is `write` (RDMA WRITEs), `wrong-rkey` (the same, with a key that was never given out), `send` (SENDs,
// with receives posted for them), `deaf` (SENDs, and never a receive) or `overflow` (SENDs whose completions
// are not polled). The asking end prints a line when it runs, the status of the first request that fails, and
// how many were flushed after it.

#include "device.h"

#define BYTES 65536u
#define DEPTH 16
#define PORT "18521"

struct card { uint32_t qpn, psn, rkey; uint64_t memory; union ibv_gid gid; };

struct end {
  const char *how, *device;
  int gid_index, peer, timeout;       // 4.096 us times two to the power of the timeout
  unsigned char *memory;
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct card mine, theirs;
};

static int is(const struct end *end, const char *how) { return !strcmp(end->how, how); }

static void make_resources(struct end *end) {
  end->context = open_device(end->device);
  end->memory = have(calloc(1, BYTES), "memory");
  end->pd = have(ibv_alloc_pd(end->context), "ibv_alloc_pd");
  end->mr = have(ibv_reg_mr(end->pd, end->memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                 "ibv_reg_mr");
  end->cq = have(ibv_create_cq(end->context, is(end, "overflow") ? 4 : 2 * DEPTH, NULL, NULL, 0),
                 "ibv_create_cq");
  struct ibv_qp_init_attr attributes = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
    .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
  end->qp = have(ibv_create_qp(end->pd, &attributes), "ibv_create_qp");
  end->mine = (struct card){end->qp->qp_num, 7, end->mr->rkey, (uintptr_t)end->memory, {{0}}};
  done(ibv_query_gid(end->context, 1, end->gid_index, &end->mine.gid), "ibv_query_gid");
}

static void connect_queue_pair(struct end *end) {
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1,
    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  done(ibv_modify_qp(end->qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
       "RESET to INIT");
  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = end->theirs.qpn,
    .rq_psn = end->theirs.psn, .min_rnr_timer = 12 /* 0.64 ms */,
    .ah_attr = {.is_global = 1, .port_num = 1,
                .grh = {.dgid = end->theirs.gid, .sgid_index = end->gid_index, .hop_limit = 32}}};
  done(ibv_modify_qp(end->qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
                     | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "INIT to RTR");
  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = end->mine.psn, .timeout = end->timeout,
    .retry_cnt = 7,
    // A receiver that gets no processor for a while is not one that never posts.
    .rnr_retry = is(end, "deaf") ? 3 : 7};
  done(ibv_modify_qp(end->qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT
                     | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), "RTR to RTS");
}

static int post_send(struct end *end) {
  struct ibv_sge piece = {(uintptr_t)end->memory, BYTES, end->mr->lkey};
  struct ibv_send_wr *bad, wr = {.sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
    .opcode = is(end, "write") || is(end, "wrong-rkey") ? IBV_WR_RDMA_WRITE : IBV_WR_SEND};
  wr.wr.rdma.remote_addr = end->theirs.memory;
  wr.wr.rdma.rkey = end->theirs.rkey ^ (is(end, "wrong-rkey") ? 0x00ff0000 : 0);
  return ibv_post_send(end->qp, &wr, &bad);
}

static void post_receive(struct end *end) {
  struct ibv_sge piece = {(uintptr_t)end->memory, BYTES, end->mr->lkey};
  struct ibv_recv_wr *bad, wr = {.sg_list = &piece, .num_sge = 1};
  done(ibv_post_recv(end->qp, &wr, &bad), "ibv_post_recv");
}

// Whether the TCP connection that stands for the peer's life is still there.
static int peer_lives(const struct end *end) {
  char token;
  return recv(end->peer, &token, 1, MSG_DONTWAIT | MSG_PEEK) != 0;
}

static void serve(struct end *end) {
  struct ibv_wc wc;
  while (peer_lives(end))
    while (ibv_poll_cq(end->cq, 1, &wc) > 0)
      if (wc.status == IBV_WC_SUCCESS) post_receive(end);
  puts("the peer is gone");
}

static void ask(struct end *end) {
  struct ibv_wc wc;
  int flushed = 0;
  long completed = 0;
  for (int i = 0; i < DEPTH; i++) done(post_send(end), "ibv_post_send");
  for (;;) {
    if (ibv_poll_cq(end->cq, 1, &wc) <= 0) continue;
    if (wc.status != IBV_WC_SUCCESS) break;
    if (completed++ == DEPTH) {
      puts("running");
      fflush(stdout);
    }
    done(post_send(end), "ibv_post_send");
  }
  printf("failed: %s\n", ibv_wc_status_str(wc.status));
  for (int last = 1; last < DEPTH; last++) {
    while (ibv_poll_cq(end->cq, 1, &wc) <= 0) {}
    flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
  }
  printf("flushed: %d\n", flushed);
}

static void overflow(struct end *end) {
  struct ibv_async_event event;
  for (int i = 0; i < DEPTH; i++) done(post_send(end), "ibv_post_send");
  for (int left = 2; left; left--) {
    done(ibv_get_async_event(end->context, &event), "ibv_get_async_event");
    printf("event: %s\n", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
  }
}

int main(int argc, char **argv) {
  struct end end = {.gid_index = 1, .timeout = 15 /* 134 ms */};
  for (int option; (option = getopt(argc, argv, "d:g:t:")) != -1;) {
    if (option == 'd') end.device = optarg;
    else if (option == 'g') end.gid_index = atoi(optarg);
    else if (option == 't') end.timeout = atoi(optarg);
    else return 2;
  }
  if (optind == argc) fail("write, send, deaf or overflow?");
  end.how = argv[optind];
  const char *host = argv[optind + 1];
  end.peer = meet(host, PORT);
  make_resources(&end);
  exchange(end.peer, &end.mine, &end.theirs, sizeof end.mine);
  connect_queue_pair(&end);
  if (!host && !is(&end, "deaf")) for (int i = 0; i < DEPTH; i++) post_receive(&end);
  char token = 0;                // both are ready
  exchange(end.peer, &token, &token, 1);
  if (!host) serve(&end);
  else if (is(&end, "overflow")) overflow(&end);
  else ask(&end);
  done(ibv_destroy_qp(end.qp), "ibv_destroy_qp");
  done(ibv_destroy_cq(end.cq), "ibv_destroy_cq");
  done(ibv_dereg_mr(end.mr), "ibv_dereg_mr");
  done(ibv_dealloc_pd(end.pd), "ibv_dealloc_pd");
  done(ibv_close_device(end.context), "ibv_close_device");
  close(end.peer);
  return 0;
}
