// setup listen ADDRESS: accepts connections by RDMA-CM for ever, and forgets each when its peer parts.
// setup connect ADDRESS COUNT: opens and closes COUNT connections, one after the other, and prints how long
// setting one up takes: from nothing to a queue pair that may send.
#include "connections.h"

#include <string.h>
#include <time.h>

#define SERVICE "7471"

static struct rdma_addrinfo *look_up(char *address, int flags) {
  struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
  REQUIRE(rdma_getaddrinfo(address, SERVICE, &hints, &found) == 0);
  return found;
}

// One channel for all: connections come and go while others stay.
static void serve(char *address) {
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *listener;
  REQUIRE(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  struct rdma_addrinfo *local = look_up(address, RAI_PASSIVE);
  REQUIRE(rdma_bind_addr(listener, local->ai_src_addr) == 0 && rdma_listen(listener, 64) == 0);
  serve_for_ever(channel);
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
