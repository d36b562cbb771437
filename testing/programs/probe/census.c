// census: how many devices a program finds; it posts a receive to a queue pair of the first one. One of the
// tests runs it with its owner's rights (set-user-ID).
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/auxv.h>

// Returns whether the receive was posted.
static int receive(struct ibv_device *device) {
  static char buffer[64];
  struct ibv_context *context = ibv_open_device(device);
  if (!context)
    return 0;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  struct ibv_sge sge = {(unsigned long)buffer, sizeof buffer, mr->lkey};
  struct ibv_recv_wr request = {.sg_list = &sge, .num_sge = 1}, *bad;
  return !ibv_modify_qp(qp, &attr, mask) && !ibv_post_recv(qp, &request, &bad);
}

int main(void) {
  int count = 0, received = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  if (list) {
    received = count > 0 && receive(list[0]);
    ibv_free_device_list(list);
  }
  printf("%s rights, %d devices, %d received\n", getauxval(AT_SECURE) ? "more" : "no more", count, received);
  return 0;
}
