// many_queue_pairs: many queue pairs in one process, connected in pairs to each other over one device.
//
//   many_queue_pairs [-d DEVICE] [-g GID_INDEX] QUEUE_PAIRS ROUNDS
//
// Makes so many RC queue pairs, says what one costs in memory, connects them pairwise, and has each send
// ROUNDS messages of 8 bytes in turn. Prints: bytes per queue pair, nanoseconds per message, nanoseconds to
// open a device.

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH 512

static void check(int bad, const char *what) {
  if (!bad) return;
  fprintf(stderr, "many_queue_pairs: %s: %s\n", what, strerror(errno));
  exit(1);
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

static long resident_bytes(void) {
  long pages = 0, skipped;
  FILE *file = fopen("/proc/self/statm", "r");
  check(!file || fscanf(file, "%ld %ld", &skipped, &pages) != 2, "statm");
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

static void join(struct ibv_qp *qp, unsigned peer, union ibv_gid gid, int index) {
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1,
    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  check(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
    .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1,
                                     .grh = {.dgid = gid, .sgid_index = index, .hop_limit = 8}}};
  check(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                      | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7};
  check(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT
                      | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

int main(int argc, char **argv) {
  const char *name = NULL;
  int index = 1;
  for (int option; (option = getopt(argc, argv, "d:g:")) != -1;) {
    if (option == 'd') name = optarg;
    else if (option == 'g') index = atoi(optarg);
    else return 2;
  }
  if (argc - optind != 2) return 2;
  const int count = atoi(argv[optind]), rounds = atoi(argv[optind + 1]);
  struct ibv_device **list = ibv_get_device_list(NULL), *device = NULL;
  check(!list, "ibv_get_device_list");
  for (int i = 0; list[i]; i++)
    if (!name || !strcmp(name, ibv_get_device_name(list[i]))) device = list[i];
  check(!device, "no such device");
  double start = now_ns();
  struct ibv_context *context = ibv_open_device(device);
  check(!context, "ibv_open_device");
  const double open_ns = now_ns() - start;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 4 * BATCH, NULL, NULL, 0);
  static char memory[64];
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_qp **qps = calloc(count, sizeof *qps);
  check(!pd || !cq || !mr || !qps, "resources");
  memset(qps, 1, count * sizeof *qps);
  const long before = resident_bytes();
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
    .cap = {.max_send_wr = 128, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
  for (int i = 0; i < count; i++) {
    qps[i] = ibv_create_qp(pd, &init);
    check(!qps[i], "ibv_create_qp");
  }
  printf("bytes per queue pair: %ld\n", (resident_bytes() - before) / count);
  if (rounds) {
    union ibv_gid gid;
    check(ibv_query_gid(context, 1, index, &gid), "ibv_query_gid");
    for (int i = 0; i < count; i++) join(qps[i], qps[i ^ 1]->qp_num, gid, index);
    struct ibv_sge piece = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = (uintptr_t)memory;
    wr.wr.rdma.rkey = mr->rkey;
    const int most = count < BATCH / 16 ? 16 * count : BATCH;   // what the queues hold
    long wanted = (long)count * rounds, posted = 0, completed = 0;
    start = now_ns();
    while (completed < wanted) {
      for (; posted < wanted && posted - completed < most; posted++)
        check(ibv_post_send(qps[posted % count], &wr, &bad), "ibv_post_send");
      struct ibv_wc wc[32];
      int found = ibv_poll_cq(cq, 32, wc);
      for (int i = 0; i < found; i++) {
        if (wc[i].status) fprintf(stderr, "many_queue_pairs: %s\n", ibv_wc_status_str(wc[i].status));
        check(wc[i].status, "completion");
      }
      completed += found;
    }
    printf("nanoseconds per message: %.0f\n", (now_ns() - start) / wanted);
  }
  printf("nanoseconds to open: %.0f\n", open_ns);
  for (int i = 0; i < count; i++) check(ibv_destroy_qp(qps[i]), "ibv_destroy_qp");
  check(ibv_destroy_cq(cq) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context), "end");
  return 0;
}
