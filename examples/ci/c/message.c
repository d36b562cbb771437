// A small verbs program, and its own test: two queue pairs of one device, connected to each other; a message
// goes from one to the other, and a WRITE. Every byte is checked. Nothing in it knows of rockery.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 100000, PORT = 1 };

#define REQUIRE(what) \
  do { if (!(what)) { fprintf(stderr, "line %d: failed: %s\n", __LINE__, #what); exit(1); } } while (0)

static struct ibv_context *first_device(void) {
  int count;
  struct ibv_device **list = ibv_get_device_list(&count);
  REQUIRE(list && count > 0);
  struct ibv_context *context = ibv_open_device(list[0]);
  REQUIRE(context);
  printf("device %s\n", ibv_get_device_name(list[0]));
  ibv_free_device_list(list);
  return context;
}

// RoCE: the entry of the GID table that an IPv4 address has.
static int ipv4_gid(struct ibv_context *context, union ibv_gid *gid) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  struct ibv_port_attr port;
  REQUIRE(ibv_query_port(context, PORT, &port) == 0);
  for (int index = 0; index < port.gid_tbl_len; index++) {
    REQUIRE(ibv_query_gid(context, PORT, index, gid) == 0);
    if (!memcmp(gid->raw, mapped, sizeof mapped)) return index;
  }
  fprintf(stderr, "the first device has no IPv4 address\n");
  exit(1);
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid, int index) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT,
                             .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                        IBV_QP_ACCESS_FLAGS) == 0);
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = PORT,
                  .grh = {.dgid = gid, .sgid_index = index, .hop_limit = 64}}};
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void wait_for(struct ibv_cq *cq, int completions) {
  while (completions > 0) {
    struct ibv_wc done;
    int polled = ibv_poll_cq(cq, 1, &done);
    REQUIRE(polled >= 0);
    if (polled == 0) continue;
    if (done.status != IBV_WC_SUCCESS) fprintf(stderr, "%s\n", ibv_wc_status_str(done.status));
    REQUIRE(done.status == IBV_WC_SUCCESS);
    completions--;
  }
}

int main(void) {
  struct ibv_context *context = first_device();
  union ibv_gid gid;
  int index = ipv4_gid(context, &gid);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  REQUIRE(pd && cq);
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp *one = ibv_create_qp(pd, &init), *two = ibv_create_qp(pd, &init);
  REQUIRE(one && two);
  connect_to(one, two->qp_num, gid, index);
  connect_to(two, one->qp_num, gid, index);

  uint8_t *from = malloc(BYTES), *to = calloc(2, BYTES);
  REQUIRE(from && to);
  for (int i = 0; i < BYTES; i++) from[i] = (uint8_t)(i * 31 + (i >> 8));
  struct ibv_mr *from_mr = ibv_reg_mr(pd, from, BYTES, 0);
  struct ibv_mr *to_mr = ibv_reg_mr(pd, to, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(from_mr && to_mr);

  struct ibv_sge into = {(uintptr_t)to, BYTES, to_mr->lkey}, out = {(uintptr_t)from, BYTES, from_mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad_receive;
  REQUIRE(ibv_post_recv(two, &receive, &bad_receive) == 0);
  struct ibv_send_wr write = {.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED,
                              .wr.rdma = {(uintptr_t)to + BYTES, to_mr->rkey}};
  struct ibv_send_wr send = {.next = &write, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED}, *bad_send;
  REQUIRE(ibv_post_send(one, &send, &bad_send) == 0);
  wait_for(cq, 3);
  REQUIRE(!memcmp(from, to, BYTES) && !memcmp(from, to + BYTES, BYTES));
  printf("%d bytes sent, %d bytes written\n", BYTES, BYTES);

  REQUIRE(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(two) == 0 && ibv_destroy_cq(cq) == 0);
  REQUIRE(ibv_dereg_mr(from_mr) == 0 && ibv_dereg_mr(to_mr) == 0);
  REQUIRE(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  return 0;
}
