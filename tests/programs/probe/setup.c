// setup listen ADDRESS: accepts connections by RDMA-CM for ever, and forgets each when its peer parts.
// setup connect ADDRESS COUNT: opens and closes COUNT connections, one after the other, and prints how long
// setting one up takes: from nothing to a queue pair that may send.
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PORT "7471"
#define REQUIRE(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static struct rdma_addrinfo *look_up(char *address, int flags) {
  struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
  REQUIRE(rdma_getaddrinfo(address, PORT, &hints, &found) == 0);
  return found;
}

static struct ibv_qp_init_attr attributes(void) {
  struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  return attr;
}

// One channel for all: connections come and go while others stay.
static void serve(char *address) {
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *listener;
  REQUIRE(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  struct rdma_addrinfo *local = look_up(address, RAI_PASSIVE);
  REQUIRE(rdma_bind_addr(listener, local->ai_src_addr) == 0 && rdma_listen(listener, 64) == 0);
  for (;;) {
    struct rdma_cm_event *event;
    REQUIRE(rdma_get_cm_event(channel, &event) == 0);
    struct rdma_cm_id *id = event->id;
    enum rdma_cm_event_type kind = event->event;
    rdma_ack_cm_event(event);
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
      struct ibv_qp_init_attr attr = attributes();
      REQUIRE(rdma_create_qp(id, NULL, &attr) == 0);
      struct rdma_conn_param param = {.rnr_retry_count = 7};
      REQUIRE(rdma_accept(id, &param) == 0);
    } else if (kind == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_disconnect(id);
      rdma_destroy_qp(id);
      rdma_destroy_id(id);
    }
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static int compare(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

static void ask(char *address, int count) {
  double *taken = calloc(count, sizeof *taken), begun = now();
  REQUIRE(taken);
  for (int i = 0; i < count; i++) {
    double start = now();
    struct rdma_addrinfo *peer = look_up(address, 0);
    struct rdma_cm_id *id;
    struct ibv_qp_init_attr attr = attributes();
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    REQUIRE(rdma_create_ep(&id, peer, NULL, &attr) == 0 && rdma_connect(id, &param) == 0);
    taken[i] = now() - start;
    rdma_disconnect(id);
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(peer);
  }
  double seconds = (now() - begun) / 1e3;
  qsort(taken, count, sizeof *taken, compare);
  printf("milliseconds p50: %.3f\nmilliseconds p99: %.3f\n", taken[count / 2], taken[count * 99 / 100]);
  printf("opened and closed per second: %.0f\n", count / seconds);
}

int main(int count, char **words) {
  REQUIRE(count >= 3);
  if (strcmp(words[1], "listen") == 0) serve(words[2]);
  REQUIRE(count == 4 && atoi(words[3]) > 0);
  ask(words[2], atoi(words[3]));
  return 0;
}
