// cancel: threads that are cancelled (pthread_cancel(3)) while they wait in a call, or before a call that is
// no cancellation point. Prints a line for each, and "right" at the end if all ended as pthreads(7) says.
#include "device.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct rdma_event_channel *events;
static int listener;

// Each waits for what never happens.
static void wait_for_completion(void) {
  struct ibv_cq *found;
  void *cookie;
  ibv_get_cq_event(channel, &found, &cookie);
}

static void wait_for_async_event(void) {
  struct ibv_async_event event;
  ibv_get_async_event(context, &event);
}

static void wait_for_cm_event(void) {
  struct rdma_cm_event *event;
  rdma_get_cm_event(events, &event);
}

static void wait_for_connection(void) { raccept(listener, NULL, NULL); }

static void wait_for_readiness(void) {
  struct pollfd asked = {listener, POLLIN, 0};
  rpoll(&asked, 1, -1);
}

static void wait_for_selection(void) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(listener, &set);
  rselect(listener + 1, &set, NULL, NULL, NULL);
}

struct waiting { const char *name; void (*wait)(void); };

// Cleanup handlers of the program run, and nothing after the call.
static void set(void *flag) { *(volatile int *)flag = 1; }

static volatile int cleaned, went_on;

static void *waiter(void *given) {
  struct waiting *waiting = given;
  pthread_cleanup_push(set, (void *)&cleaned);
  waiting->wait();
  went_on = 1;
  pthread_cleanup_pop(0);
  return NULL;
}

static int cancelled_in_a_wait(struct waiting *waiting, unsigned after_ms) {
  pthread_t thread;
  void *result = NULL;
  cleaned = went_on = 0;
  done(pthread_create(&thread, NULL, waiter, waiting), "pthread_create");
  sleep_ms(after_ms);
  done(pthread_cancel(thread), "pthread_cancel");
  done(pthread_join(thread, &result), "pthread_join");
  int right = result == PTHREAD_CANCELED && cleaned && !went_on;
  printf("%s, cancelled after %u ms: %s\n", waiting->name, after_ms, right ? "ended" : "WRONG");
  return right;
}

// Calls that are no cancellation points, with a cancellation pending: all are made, and the thread ends
// later.
static void *caller(void *calls_made) {
  int *made = calls_made;
  pthread_cancel(pthread_self());
  struct ibv_wc wc;
  char memory[4096];
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {4, 4, 1, 1, 0}};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
  if (!mr || !qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
    return NULL;
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE)) return NULL;
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN)) return NULL;
  struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
  ibv_query_gid(context, 1, 1, &to.grh.dgid);
  struct ibv_ah *ah = ibv_create_ah(pd, &to);
  struct ibv_sge sge = {(uintptr_t)memory, 100, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                           .wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 1}}, *bad;
  if (!ah || ibv_post_send(qp, &wr, &bad) || ibv_poll_cq(cq, 1, &wc) < 0) return NULL;
  if (ibv_destroy_ah(ah) || ibv_destroy_qp(qp) || ibv_dereg_mr(mr)) return NULL;
  struct ibv_device **list = ibv_get_device_list(NULL);
  if (!list) return NULL;
  ibv_free_device_list(list);
  struct rdma_cm_id *id;
  struct sockaddr_in here = {.sin_family = AF_INET};
  if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP) || rdma_bind_addr(id, (void *)&here) ||
      rdma_listen(id, 1) || rdma_destroy_id(id))
    return NULL;
  *made = 1;
  pthread_testcancel();
  return NULL;
}

int main(void) {
  struct sockaddr_in here = {.sin_family = AF_INET};
  inet_pton(AF_INET, "127.0.0.1", &here.sin_addr);
  context = open_device(NULL);
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  channel = have(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  cq = have(ibv_create_cq(context, 16, NULL, channel, 0), "ibv_create_cq");
  done(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
  events = have(rdma_create_event_channel(), "rdma_create_event_channel");
  listener = rsocket(AF_INET, SOCK_STREAM, 0);
  done(rbind(listener, (void *)&here, sizeof here), "rbind");
  done(rlisten(listener, 4), "rlisten");
  struct waiting waits[] = {
      {"ibv_get_cq_event", wait_for_completion}, {"ibv_get_async_event", wait_for_async_event},
      {"rdma_get_cm_event", wait_for_cm_event},  {"raccept", wait_for_connection},
      {"rpoll", wait_for_readiness},             {"rselect", wait_for_selection}};
  int wrong = 0;
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
    for (unsigned ms = 0; ms <= 200; ms += 100) wrong += !cancelled_in_a_wait(&waits[i], ms);

  pthread_t thread;
  void *result = NULL;
  int made = 0;
  done(pthread_create(&thread, NULL, caller, &made), "pthread_create");
  done(pthread_join(thread, &result), "pthread_join");
  wrong += !made || result != PTHREAD_CANCELED;
  printf("calls with a cancellation pending: %s\n", made ? "made" : "WRONG");

  // Everything still works for the threads that are left.
  struct ibv_wc wc;
  done(rclose(listener), "rclose");
  done(ibv_poll_cq(cq, 1, &wc) < 0, "ibv_poll_cq");
  done(ibv_destroy_cq(cq), "ibv_destroy_cq");
  done(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  done(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  done(ibv_close_device(context), "ibv_close_device");
  puts(wrong ? "wrong" : "right");
  return wrong != 0;
}
