// A test of code that posts requests: it has to repeat a request that a full queue refuses, and to report one
// that fails. The faults are added where the test needs them.
//
//   cc -o retries retries.c -libverbs
//   rockery run --fault none -- ./retries
#include "../rockery_fault.h"

#include <err.h>
#include <infiniband/verbs.h>
#include <stdint.h>

static char memory[4096];

// What is tested: posts a WRITE, again while the queue is full, and returns the status of its completion.
static enum ibv_wc_status write_once(struct ibv_qp *qp, struct ibv_mr *mr, int *refused) {
  struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
  struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {(uintptr_t)memory + 2048, mr->rkey}};
  int error;
  while ((error = ibv_post_send(qp, &wr, &bad)) == ENOMEM) ++*refused;
  if (error) errx(1, "ibv_post_send: %s", strerror(error));
  struct ibv_wc wc;
  while (!ibv_poll_cq(qp->send_cq, 1, &wc)) {}
  return wc.status;
}

static void check(int result, const char *what) {
  if (result) errx(1, "%s: %s", what, strerror(errno));
}

// A queue pair that is connected to itself.
static struct ibv_qp *loop(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  struct ibv_gid_entry entry;
  uint32_t index = 0;
  if (!qp) err(1, "ibv_create_qp");
  while (ibv_query_gid_ex(context, 1, index, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2) index++;
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  check(ibv_modify_qp(qp, &attr, mask), "INIT");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
                              .ah_attr = {.is_global = 1, .port_num = 1,
                                          .grh = {.dgid = entry.gid, .sgid_index = index, .hop_limit = 1}}};
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  check(ibv_modify_qp(qp, &attr, mask), "RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC;
  check(ibv_modify_qp(qp, &attr, mask), "RTS");
  return qp;
}

int main(void) {
  int count, refused = 0;
  struct ibv_device **devices = ibv_get_device_list(&count);
  if (!devices || !count) errx(1, "there is no device");
  struct ibv_context *context = ibv_open_device(devices[0]);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, access);
  if (!pd || !cq || !mr) err(1, "objects");
  struct ibv_qp *qp = loop(context, pd, cq);

  if (write_once(qp, mr, &refused) != IBV_WC_SUCCESS || refused) errx(1, "without a fault: it fails");
  int rule = rockery_fault_add(0, "post_send: fail ENOMEM times 3");
  if (rule < 0) errx(1, "%s", rockery_fault_reason());
  if (write_once(qp, mr, &refused) != IBV_WC_SUCCESS) errx(1, "a full queue: it fails");
  printf("refused %d times, by %lld faults, and written\n", refused, rockery_fault_count(0, rule));
  if (rockery_fault_remove(0, rule)) errx(1, "%s", rockery_fault_reason());

  if (rockery_fault_add(0, "post_sned: fail EIO") >= 0) errx(1, "a rule that is none was taken");
  printf("refused: %s\n", rockery_fault_reason());

  if (rockery_fault_add(0, "completion: status RETRY_EXC_ERR") < 0) errx(1, "%s", rockery_fault_reason());
  printf("a lost peer: %s\n", ibv_wc_status_str(write_once(qp, mr, &refused)));
  if (rockery_fault_clear(0)) errx(1, "%s", rockery_fault_reason());
  return 0;
}
