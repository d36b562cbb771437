// sanitized [overflow | race]: a queue pair that is connected to itself, with events and a second thread that
// takes completions, for builds with a sanitizer. With a word the program itself makes the mistake that the
// sanitizer has to report.
#include "device.h"

#include <pthread.h>
#include <stdlib.h>

enum { LENGTH = 4096, HALF = LENGTH / 2, ROUNDS = 100 };

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static volatile int shared;

static void change(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask) {
  if (ibv_modify_qp(qp, &attr, mask)) fail("ibv_modify_qp to %d", attr.qp_state);
}

static void connect_to_itself(struct ibv_qp *qp) {
  union ibv_gid gid;
  if (ibv_query_gid(context, 1, 1, &gid)) fail("ibv_query_gid");
  change(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1,
         .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  change(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
         .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
         .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1}}},
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  change(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
         .max_rd_atomic = 1},
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC);
}

// Takes two completions, and waits for the event of the first.
static void *take(void *unused) {
  struct ibv_cq *woken;
  void *of;
  if (ibv_get_cq_event(channel, &woken, &of) || woken != cq) fail("ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
  for (int taken = 0; taken < 2;) {
    struct ibv_wc wc;
    int found = ibv_poll_cq(cq, 1, &wc);
    if (found < 0 || (found && wc.status)) fail("status %d", found ? (int)wc.status : found);
    taken += found;
  }
  return unused;
}

static void send_to_itself(struct ibv_qp *qp, char *memory, struct ibv_mr *mr, int round) {
  memset(memory, round + 1, HALF);
  struct ibv_sge from = {(uintptr_t)memory, HALF, mr->lkey};
  struct ibv_sge to = {(uintptr_t)memory + HALF, HALF, mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
  struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &from,
                             .num_sge = 1}, *bad_send;
  pthread_t taker;
  if (ibv_req_notify_cq(cq, 0) || pthread_create(&taker, NULL, take, NULL)) fail("no thread");
  if (ibv_post_recv(qp, &receive, &bad_receive) || ibv_post_send(qp, &send, &bad_send)) fail("posting");
  pthread_join(taker, NULL);
  if (memcmp(memory, memory + HALF, HALF)) fail("round %d: wrong bytes", round);
}

static void *count(void *unused) {
  for (int i = 0; i < 1000; i++) shared++;
  return unused;
}

static void race(void) {
  pthread_t other;
  if (pthread_create(&other, NULL, count, NULL)) fail("no thread");
  count(NULL);
  pthread_join(other, NULL);
}

int main(int argc, char **argv) {
  context = open_device("rk_lo");
  struct ibv_pd *pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  channel = have(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  cq = have(ibv_create_cq(context, 16, NULL, channel, 0), "ibv_create_cq");
  char *memory = have(malloc(LENGTH), "malloc");
  struct ibv_mr *mr = have(ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
  struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0},
                                  .qp_type = IBV_QPT_RC};
  struct ibv_qp *qp = have(ibv_create_qp(pd, &attr), "ibv_create_qp");
  connect_to_itself(qp);
  for (int round = 0; round < ROUNDS; round++) send_to_itself(qp, memory, mr, round);
  volatile size_t behind = LENGTH;
  if (argc > 1 && !strcmp(argv[1], "overflow")) memory[behind] = 1;
  if (argc > 1 && !strcmp(argv[1], "race")) race();
  if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_destroy_comp_channel(channel) ||
      ibv_dealloc_pd(pd) || ibv_close_device(context))
    fail("destroying");
  free(memory);
  puts("right");
  return 0;
}
