// multicast_member: a UD queue pair that is attached to multicast groups for a while, and then is not.
//
//   multicast_member DEVICE SECONDS GROUP…

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(int bad, const char *what) {
  if (!bad) return;
  fprintf(stderr, "member: %s failed\n", what);
  exit(1);
}

int main(int argc, char **argv) {
  check(argc < 4, "reading the arguments");
  struct ibv_device **list = ibv_get_device_list(NULL), *device = NULL;
  for (int i = 0; list && list[i]; i++)
    if (!strcmp(ibv_get_device_name(list[i]), argv[1])) device = list[i];
  check(!device, "finding the device");
  struct ibv_context *context = ibv_open_device(device);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
    .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  check(!qp, "making a queue pair");
  union ibv_gid gid[8];
  const int groups = argc - 3 < 8 ? argc - 3 : 8;
  for (int i = 0; i < groups; i++) {
    check(inet_pton(AF_INET6, argv[3 + i], gid[i].raw) != 1, argv[3 + i]);
    check(ibv_attach_mcast(qp, &gid[i], 0), "ibv_attach_mcast");
  }
  puts("attached");
  fflush(stdout);
  sleep(atoi(argv[2]));
  for (int i = 0; i < groups; i++) check(ibv_detach_mcast(qp, &gid[i], 0), "ibv_detach_mcast");
  puts("detached");
  fflush(stdout);
  sleep(atoi(argv[2]));
  return ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context);
}
