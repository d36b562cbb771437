// stopped_listener: one thread binds a port and listens on it while rockery's agent is stopped, and waits for
// the answers; another one resolves addresses on the same event channel meanwhile. Prints whether the first
// still waited when the second was done.
#include "agent.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

static struct rdma_event_channel *channel;
static struct sockaddr_in here = {.sin_family = AF_INET};
static atomic_int began, bound;

static void *listen_on_a_port(void *unused) {
  (void)unused;
  struct rdma_cm_id *id;
  done(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
  struct sockaddr_in port = here;
  port.sin_port = htons(7471);
  began = 1;
  int status = rdma_bind_addr(id, (struct sockaddr *)&port);
  bound = 1;
  // Fails where the other thread was kept waiting until the agent's time was up.
  done(status, "rdma_bind_addr");
  done(rdma_listen(id, 1), "rdma_listen");
  return id;
}

static void resolve(void) {
  struct rdma_cm_id *id;
  done(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
  done(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 2000), "rdma_resolve_addr");
  struct rdma_cm_event *event;
  done(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (event->id != id || event->event != RDMA_CM_EVENT_ADDR_RESOLVED) fail("event %d", event->event);
  done(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  done(rdma_destroy_id(id), "rdma_destroy_id");
}

int main(int argc, char **argv) {
  if (argc != 2 || !inet_pton(AF_INET, argv[1], &here.sin_addr)) fail("usage: stopped_listener ADDRESS");
  channel = have(rdma_create_event_channel(), "rdma_create_event_channel");
  // The first one fetches a stock of ports from the agent.
  resolve();
  pid_t process = agent();
  kill(process, SIGSTOP);
  pthread_t thread;
  pthread_create(&thread, NULL, listen_on_a_port, NULL);
  while (!began) sched_yield();
  usleep(100000);
  for (int round = 0; round < 5; round++) resolve();
  printf("addresses resolved while a port was being bound: %s\n", bound ? "no" : "yes");
  kill(process, SIGCONT);
  void *id;
  pthread_join(thread, &id);
  done(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
  puts("done");
}
