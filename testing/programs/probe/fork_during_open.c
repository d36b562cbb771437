// fork_during_open: threads that WRITE to themselves without end, while the first thread starts other
// programs.
//
//   fork_during_open DEVICE GID_INDEX TIMES
//
// Each fork finds the threads anywhere in verbs. All of them have to go on: prints `all went on` at the end.

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define BYTES 8192

#define MUST(what) \
  do { \
    if (!(what)) { perror(#what); exit(1); } \
  } while (0)

static struct ibv_context *context;
static union ibv_gid gid;
static int gid_index;
static atomic_int stop;
static atomic_ulong done[THREADS];

static void connect_to_itself(struct ibv_qp *qp) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
    .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
  attr.ah_attr.grh = (struct ibv_global_route){.dgid = gid, .sgid_index = gid_index, .hop_limit = 64};
  MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 15, .retry_cnt = 7, .rnr_retry = 7};
  MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

// Registers, WRITEs, and registers again: every lock of the library is taken now and then.
static void *work(void *argument) {
  atomic_ulong *count = argument;
  unsigned char *memory = calloc(2, BYTES);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  MUST(memory && pd && cq);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
    .cap = {16, 1, 1, 1, 0}};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  MUST(qp);
  connect_to_itself(qp);
  while (!stop) {
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    MUST(mr);
    for (unsigned char round = 1; round; round++) {
      memset(memory, round, BYTES);
      struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
      struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1}, *bad;
      wr.wr.rdma.remote_addr = (uintptr_t)memory + BYTES;
      wr.wr.rdma.rkey = mr->rkey;
      MUST(!ibv_post_send(qp, &wr, &bad));
      struct ibv_wc wc;
      int rc;
      while ((rc = ibv_poll_cq(cq, 1, &wc)) == 0) {
      }
      MUST(rc == 1 && wc.status == IBV_WC_SUCCESS && !memcmp(memory, memory + BYTES, BYTES));
      ++*count;
    }
    MUST(!ibv_dereg_mr(mr));
  }
  return NULL;
}

int main(int argc, char **argv) {
  MUST(argc == 4);
  struct ibv_device **list = ibv_get_device_list(NULL);
  for (int i = 0; list && list[i]; i++)
    if (!strcmp(ibv_get_device_name(list[i]), argv[1])) context = ibv_open_device(list[i]);
  gid_index = atoi(argv[2]);
  MUST(context && !ibv_query_gid(context, 1, gid_index, &gid));
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) MUST(!pthread_create(&threads[i], NULL, work, &done[i]));
  for (int times = atoi(argv[3]); times > 0; times--) {
    unsigned long before[THREADS];
    for (int i = 0; i < THREADS; i++) before[i] = done[i];
    // By fork and exec, without a shell in between.
    pid_t child = fork();
    if (child == 0) {
      execlp("true", "true", NULL);
      _exit(1);
    }
    MUST(child > 0);
    for (int i = 0; i < THREADS; i++)
      while (done[i] == before[i]) usleep(100);
    MUST(!system("true"));
  }
  stop = 1;
  for (int i = 0; i < THREADS; i++) MUST(!pthread_join(threads[i], NULL));
  puts("all went on");
  return 0;
}
