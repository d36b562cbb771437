// Shards of metadata to all servers with one packet each: datagrams to a multicast group, which the switches
// copy. Nothing is sent again: a server that misses a shard asks for it by other means.
//
//   cc -O2 shards.c -libverbs -o shards
//   server$ ./shards receive         # on each server; ends when it has all shards
//   host$   ./shards send
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 8, BYTES = 1024, GRH = 40, PORT = 1, KEY = 0x11111111, ALL = 0xffffff };

// An IPv4 group of the block for sites (RFC 2365), as a GID.
static const char GROUP[] = "::ffff:239.47.91.1";

#define REQUIRE(what) \
  do { if (!(what)) { fprintf(stderr, "line %d: failed: %s\n", __LINE__, #what); exit(1); } } while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static uint8_t memory[SHARDS][GRH + BYTES];
static struct ibv_mr *mr;

static int ipv4_gid(void) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  struct ibv_port_attr port;
  union ibv_gid gid;
  REQUIRE(ibv_query_port(context, PORT, &port) == 0);
  for (int index = 0; index < port.gid_tbl_len; index++) {
    REQUIRE(ibv_query_gid(context, PORT, index, &gid) == 0);
    if (!memcmp(gid.raw, mapped, sizeof mapped)) return index;
  }
  fprintf(stderr, "the first device has no IPv4 address\n");
  exit(1);
}

static void open_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  REQUIRE(list && list[0] && (context = ibv_open_device(list[0])));
  ibv_free_device_list(list);
  REQUIRE((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, SHARDS, NULL, NULL, 0)));
  REQUIRE((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
      .cap = {.max_send_wr = SHARDS, .max_recv_wr = SHARDS, .max_send_sge = 1, .max_recv_sge = 1}};
  REQUIRE((qp = ibv_create_qp(pd, &init)));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = KEY};
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
}

static struct ibv_wc next_completion(void) {
  struct ibv_wc done;
  int polled;
  while ((polled = ibv_poll_cq(cq, 1, &done)) == 0) {}
  REQUIRE(polled == 1 && done.status == IBV_WC_SUCCESS);
  return done;
}

// The first byte is the shard's number, the others follow from it.
static uint8_t byte_of(int shard, int at) { return at == 0 ? shard : (uint8_t)(shard * 31 + at); }

static void send_shards(const union ibv_gid *group) {
  struct ibv_ah_attr to = {.is_global = 1, .port_num = PORT,
                           .grh = {.dgid = *group, .sgid_index = ipv4_gid(), .hop_limit = 1}};
  struct ibv_ah *ah = ibv_create_ah(pd, &to);
  REQUIRE(ah);
  for (int shard = 0; shard < SHARDS; shard++) {
    for (int at = 0; at < BYTES; at++) memory[shard][at] = byte_of(shard, at);
    struct ibv_sge sge = {(uintptr_t)memory[shard], BYTES, mr->lkey};
    struct ibv_send_wr request = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .wr.ud = {.ah = ah, .remote_qpn = ALL, .remote_qkey = KEY}}, *bad;
    REQUIRE(ibv_post_send(qp, &request, &bad) == 0);
  }
  for (int shard = 0; shard < SHARDS; shard++) next_completion();
  printf("%d shards sent\n", SHARDS);
  REQUIRE(ibv_destroy_ah(ah) == 0);
}

static void receive_shards(const union ibv_gid *group) {
  for (int slot = 0; slot < SHARDS; slot++) {
    struct ibv_sge sge = {(uintptr_t)memory[slot], sizeof memory[slot], mr->lkey};
    struct ibv_recv_wr request = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    REQUIRE(ibv_post_recv(qp, &request, &bad) == 0);
  }
  REQUIRE(ibv_attach_mcast(qp, group, 0) == 0);
  printf("waiting\n");
  fflush(stdout);
  int seen = 0;
  for (int count = 0; count < SHARDS; count++) {
    struct ibv_wc done = next_completion();
    REQUIRE(done.byte_len == GRH + BYTES);
    const uint8_t *shard = memory[done.wr_id] + GRH;
    REQUIRE(shard[0] < SHARDS && !(seen >> shard[0] & 1));
    for (int at = 0; at < BYTES; at++) REQUIRE(shard[at] == byte_of(shard[0], at));
    seen |= 1 << shard[0];
  }
  printf("%d shards received\n", SHARDS);
  REQUIRE(ibv_detach_mcast(qp, group, 0) == 0);
}

int main(int argc, char **argv) {
  union ibv_gid group;
  REQUIRE(inet_pton(AF_INET6, GROUP, group.raw) == 1);
  open_device();
  if (argc == 2 && !strcmp(argv[1], "send")) {
    send_shards(&group);
  } else if (argc == 2 && !strcmp(argv[1], "receive")) {
    receive_shards(&group);
  } else {
    fprintf(stderr, "shards send | receive\n");
    return 2;
  }
  return 0;
}
