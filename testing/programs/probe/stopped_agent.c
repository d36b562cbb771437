// stopped_agent: one thread opens an XRC domain while rockery's agent is stopped, and waits for it; another
// one creates and destroys objects meanwhile. Prints whether the first still waited when the second was done.
#include "agent.h"
#include "device.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

static struct ibv_context *context;
static atomic_int began, opened;

static void *open_domain(void *file) {
  struct ibv_xrcd_init_attr attributes = {.fd = *(int *)file, .oflags = O_CREAT,
    .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS};
  began = 1;
  struct ibv_xrcd *domain = ibv_open_xrcd(context, &attributes);
  opened = 1;
  return domain;
}

int main(void) {
  context = open_device(NULL);
  int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  if (file < 0) fail("no temporary file");
  pid_t process = agent();
  kill(process, SIGSTOP);
  pthread_t thread;
  pthread_create(&thread, NULL, open_domain, &file);
  while (!began) sched_yield();
  usleep(100000);
  for (int round = 0; round < 100; round++) {
    struct ibv_pd *pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
    struct ibv_cq *cq = have(ibv_create_cq(context, 16, NULL, NULL, 0), "ibv_create_cq");
    struct ibv_qp_init_attr attributes = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = have(ibv_create_qp(pd, &attributes), "ibv_create_qp");
    done(ibv_destroy_qp(qp), "ibv_destroy_qp");
    done(ibv_destroy_cq(cq), "ibv_destroy_cq");
    done(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  }
  printf("objects made while the domain was being opened: %s\n", opened ? "no" : "yes");
  kill(process, SIGCONT);
  void *domain;
  pthread_join(thread, &domain);
  done(ibv_close_xrcd(have(domain, "ibv_open_xrcd")), "ibv_close_xrcd");
  puts("done");
}
