// A lock in the memory of a storage server, which hosts take with an atomic operation: the server's processor
// has no part in it. Four hosts (threads here, each with a queue pair of its own) raise a counter under the
// lock, by a READ and a WRITE: without the lock, some of them would write an old value.
//
//   cc -O2 -pthread lock.c -libverbs && ./a.out
//
// A host that dies with the lock holds it for ever: a real one needs a time until which it is held.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS = 4, ROUNDS = 250, PORT = 1 };

#define REQUIRE(what) \
  do { if (!(what)) { fprintf(stderr, "line %d: failed: %s\n", __LINE__, #what); exit(1); } } while (0)

// The server's memory. Atomic operations need addresses that are multiples of 8.
static struct { uint64_t lock, counter; } shared __attribute__((aligned(8)));

struct host {
  pthread_t thread;
  uint64_t number;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct ibv_mr *mr;
  uint64_t value;
  uint32_t rkey;
  unsigned long waited;
};

static struct ibv_context *context;
static union ibv_gid gid;
static int gid_index;

// RoCE: the entry of the GID table that an IPv4 address has.
static void find_gid(void) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  struct ibv_port_attr port;
  REQUIRE(ibv_query_port(context, PORT, &port) == 0);
  for (gid_index = 0; gid_index < port.gid_tbl_len; gid_index++) {
    REQUIRE(ibv_query_gid(context, PORT, gid_index, &gid) == 0);
    if (!memcmp(gid.raw, mapped, sizeof mapped)) return;
  }
  fprintf(stderr, "the first device has no IPv4 address\n");
  exit(1);
}

static void connect_to(struct ibv_qp *qp, uint32_t peer) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT,
                             .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                        IBV_QP_ACCESS_FLAGS) == 0);
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .min_rnr_timer = 12,
      .max_dest_rd_atomic = 1,
      .ah_attr = {.is_global = 1, .port_num = PORT,
                  .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                              .max_rd_atomic = 1};
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

// Carries out one operation on the server's memory, and waits for it.
static void carry_out(struct host *host, struct ibv_send_wr *request) {
  struct ibv_sge sge = {(uintptr_t)&host->value, sizeof host->value, host->mr->lkey};
  struct ibv_send_wr *bad;
  struct ibv_wc done;
  request->sg_list = &sge;
  request->num_sge = 1;
  request->send_flags = IBV_SEND_SIGNALED;
  REQUIRE(ibv_post_send(host->qp, request, &bad) == 0);
  int polled;
  while ((polled = ibv_poll_cq(host->cq, 1, &done)) == 0) {}
  REQUIRE(polled == 1);
  if (done.status != IBV_WC_SUCCESS) fprintf(stderr, "%s\n", ibv_wc_status_str(done.status));
  REQUIRE(done.status == IBV_WC_SUCCESS);
}

// Changes the lock from one value to another, if it has the first; returns the value that it had.
static uint64_t exchange(struct host *host, uint64_t from, uint64_t to) {
  struct ibv_send_wr request = {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
                                .wr.atomic = {.remote_addr = (uintptr_t)&shared.lock, .compare_add = from,
                                              .swap = to, .rkey = host->rkey}};
  carry_out(host, &request);
  return host->value;
}

static void move(struct host *host, enum ibv_wr_opcode opcode) {
  struct ibv_send_wr request = {.opcode = opcode,
                                .wr.rdma = {(uintptr_t)&shared.counter, host->rkey}};
  carry_out(host, &request);
}

static void *work(void *argument) {
  struct host *host = argument;
  for (int round = 0; round < ROUNDS; round++) {
    while (exchange(host, 0, host->number) != 0) host->waited++;
    move(host, IBV_WR_RDMA_READ);
    host->value++;
    move(host, IBV_WR_RDMA_WRITE);
    // A WRITE and an atomic operation behind it on one queue pair are carried out in this order.
    REQUIRE(exchange(host, host->number, 0) == host->number);
  }
  return NULL;
}

int main(void) {
  int count;
  struct ibv_device **list = ibv_get_device_list(&count);
  REQUIRE(list && count > 0 && (context = ibv_open_device(list[0])));
  ibv_free_device_list(list);
  struct ibv_device_attr device;
  REQUIRE(ibv_query_device(context, &device) == 0);
  if (device.atomic_cap == IBV_ATOMIC_NONE) {
    fprintf(stderr, "the device has no atomic operations\n");
    return 1;
  }
  find_gid();
  struct ibv_pd *pd = ibv_alloc_pd(context);
  REQUIRE(pd);
  struct ibv_mr *mr = ibv_reg_mr(pd, &shared, sizeof shared,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  REQUIRE(mr);

  static struct host hosts[HOSTS];
  for (int i = 0; i < HOSTS; i++) {
    struct host *host = &hosts[i];
    host->number = i + 1;
    host->rkey = mr->rkey;
    REQUIRE((host->cq = ibv_create_cq(context, 4, NULL, NULL, 0)));
    REQUIRE((host->mr = ibv_reg_mr(pd, &host->value, sizeof host->value, IBV_ACCESS_LOCAL_WRITE)));
    struct ibv_qp_init_attr init = {
        .send_cq = host->cq, .recv_cq = host->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *server = ibv_create_qp(pd, &init);
    REQUIRE(server && (host->qp = ibv_create_qp(pd, &init)));
    connect_to(server, host->qp->qp_num);
    connect_to(host->qp, server->qp_num);
  }
  for (int i = 0; i < HOSTS; i++) REQUIRE(pthread_create(&hosts[i].thread, NULL, work, &hosts[i]) == 0);
  unsigned long waited = 0;
  for (int i = 0; i < HOSTS; i++) {
    REQUIRE(pthread_join(hosts[i].thread, NULL) == 0);
    waited += hosts[i].waited;
  }
  REQUIRE(shared.counter == HOSTS * ROUNDS && shared.lock == 0);
  printf("%d hosts raised the counter to %llu; the lock was held by another %lu times\n", HOSTS,
         (unsigned long long)shared.counter, waited);
  return 0;
}
