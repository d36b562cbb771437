// Uses verbs as NCCL does: opens libibverbs.so.1 at run time, looks each function up with its version,
// chooses a GID by what /sys says of it, keeps a thread waiting for asynchronous events, and writes with
// immediate data from one queue pair to another.
//
// loader DEVICE ADDRESS: the device, and the IPv4 address that one of its GIDs has.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_query_port
#undef ibv_reg_mr

enum { BYTES = 65536, IMMEDIATE = 0x4e43434c };

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "failed: %s\n", #what); exit(1); } } while (0)

static int wanted, found;

static void *look_up(void *library, const char *name, const char *version) {
  void *function = dlvsym(library, name, version);
  wanted++;
  if (function) found++;
  else fprintf(stderr, "no %s at %s\n", name, version);
  return function;
}

#define FUNCTIONS(each) \
  each(ack_async_event) each(alloc_pd) each(close_device) each(create_cq) each(create_qp) each(dealloc_pd) \
  each(dereg_mr) each(destroy_cq) each(destroy_qp) each(event_type_str) each(fork_init) \
  each(free_device_list) each(get_async_event) each(get_device_list) each(get_device_name) each(modify_qp) \
  each(open_device) each(query_device) each(query_gid) each(query_port) each(query_qp) each(reg_mr)

#define DECLARE(name) static __typeof__(&ibv_##name) my_##name;
FUNCTIONS(DECLARE)

static void load(void) {
  void *library = dlopen("libibverbs.so.1", RTLD_NOW);
  CHECK(library);
#define FIND(name) my_##name = (__typeof__(my_##name))look_up(library, "ibv_" #name, "IBVERBS_1.1");
  FUNCTIONS(FIND)
  look_up(library, "ibv_reg_mr_iova2", "IBVERBS_1.8");
  look_up(library, "ibv_query_ece", "IBVERBS_1.10");
  look_up(library, "ibv_set_ece", "IBVERBS_1.10");
  // It asks whether memory of other devices can be registered: what has no such memory must not say "bad
  // descriptor", which would mean that it can.
  __typeof__(&ibv_reg_dmabuf_mr) dmabuf =
      (__typeof__(dmabuf))look_up(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
  printf("%d of %d functions\n", found, wanted);
  CHECK(found == wanted && dmabuf);
}

static void *wait_for_events(void *context) {
  struct ibv_async_event event;
  while (my_get_async_event(context, &event) == 0) {
    fprintf(stderr, "event: %s\n", my_event_type_str(event.event_type));
    my_ack_async_event(&event);
  }
  return NULL;
}

static struct ibv_context *open_named(const char *name) {
  struct ibv_context *context = NULL;
  struct ibv_device **list = my_get_device_list(NULL);
  CHECK(list);
  for (int i = 0; list[i]; i++)
    if (!strcmp(my_get_device_name(list[i]), name)) context = my_open_device(list[i]);
  my_free_device_list(list);
  CHECK(context);
  return context;
}

// The index of the RoCE v2 GID of an IPv4 address.
static int index_of(struct ibv_context *context, const char *device, const char *address,
                    union ibv_gid *gid) {
  struct in_addr wanted_address;
  struct ibv_port_attr port;
  CHECK(inet_pton(AF_INET, address, &wanted_address) == 1);
  CHECK(my_query_port(context, 1, (void *)&port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
  for (int i = 0; i < port.gid_tbl_len; i++) {
    char path[PATH_MAX], type[64] = "";
    CHECK(my_query_gid(context, 1, i, gid) == 0);
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%d", device, i);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    CHECK(fgets(type, sizeof type, file));
    fclose(file);
    if (!strcmp(type, "RoCE v2\n") && !memcmp(gid->raw + 12, &wanted_address, 4)) return i;
  }
  fprintf(stderr, "no GID for %s\n", address);
  exit(1);
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid, int index) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  struct ibv_qp_attr receive = {
      .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = 1,
                  .grh = {.dgid = gid, .sgid_index = index, .hop_limit = 255, .traffic_class = 0}}};
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7};
  CHECK(my_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(my_modify_qp(qp, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  CHECK(my_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct ibv_wc next(struct ibv_cq *cq) {
  struct ibv_wc done;
  while (ibv_poll_cq(cq, 1, &done) == 0) {}
  CHECK(done.status == IBV_WC_SUCCESS);
  return done;
}

int main(int count, char **words) {
  CHECK(count == 3);
  load();
  CHECK(my_fork_init() == 0);
  struct ibv_context *context = open_named(words[1]);
  pthread_t waiter;
  CHECK(pthread_create(&waiter, NULL, wait_for_events, context) == 0);
  CHECK(pthread_detach(waiter) == 0);
  char path[PATH_MAX], *device;
  snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", words[1]);
  CHECK(device = realpath(path, NULL));
  free(device);

  union ibv_gid gid;
  int index = index_of(context, words[1], words[2], &gid);
  struct ibv_pd *pd = my_alloc_pd(context);
  struct ibv_cq *cq = my_create_cq(context, 16, NULL, NULL, 0);
  CHECK(pd && cq);
  struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4,
                                          .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp *from = my_create_qp(pd, &attr), *to = my_create_qp(pd, &attr);
  CHECK(from && to);
  connect_to(from, to->qp_num, gid, index);
  connect_to(to, from->qp_num, gid, index);

  unsigned char *source = malloc(BYTES), *target = calloc(1, BYTES);
  for (int i = 0; i < BYTES; i++) source[i] = i * 7 + (i >> 8);
  struct ibv_mr *source_mr = my_reg_mr(pd, source, BYTES, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_mr *target_mr = my_reg_mr(pd, target, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  CHECK(source_mr && target_mr);
  struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
  CHECK(ibv_post_recv(to, &receive, &bad_receive) == 0);
  struct ibv_sge element = {.addr = (uintptr_t)source, .length = BYTES, .lkey = source_mr->lkey};
  struct ibv_send_wr write = {.wr_id = 2, .sg_list = &element, .num_sge = 1, .imm_data = htonl(IMMEDIATE),
                              .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
                              .wr.rdma = {(uintptr_t)target, target_mr->rkey}}, *bad_write;
  CHECK(ibv_post_send(from, &write, &bad_write) == 0);
  for (int i = 0; i < 2; i++) {
    struct ibv_wc done = next(cq);
    if (done.wr_id == 1) CHECK(done.opcode == IBV_WC_RECV_RDMA_WITH_IMM && done.imm_data == htonl(IMMEDIATE));
  }
  CHECK(memcmp(source, target, BYTES) == 0);
  printf("%d bytes written\n", BYTES);
  CHECK(my_destroy_qp(from) == 0 && my_destroy_qp(to) == 0 && my_destroy_cq(cq) == 0);
  CHECK(my_dereg_mr(source_mr) == 0 && my_dereg_mr(target_mr) == 0 && my_dealloc_pd(pd) == 0);
  return 0;
}
