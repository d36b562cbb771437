// unanswered ADDRESS: asks a host that does not answer, for a connection, for a datagram service, and in
// calls that wait, and prints what comes of it.
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct rdma_conn_param param = {.qp_num = 7, .retry_count = 1};

// Packets live for a millisecond here: each try waits for twice that, too.
static void hurry(struct rdma_cm_id *id) {
  uint8_t timeout = 8;
  REQUIRE(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1) == 0);
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel) {
  struct rdma_cm_event *event;
  REQUIRE(rdma_get_cm_event(channel, &event) == 0);
  return event;
}

static void by_events(const char *name, enum rdma_port_space space) {
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *id;
  REQUIRE(channel && rdma_create_id(channel, &id, NULL, space) == 0);
  hurry(id);
  REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
  rdma_ack_cm_event(next(channel));
  REQUIRE(rdma_resolve_route(id, 2000) == 0);
  rdma_ack_cm_event(next(channel));
  REQUIRE(rdma_connect(id, &param) == 0);
  struct rdma_cm_event *event = next(channel);
  const char *status = event->status < 0 ? strerrorname_np(-event->status) : "0";
  printf("%s: %s -%s\n", name, rdma_event_str(event->event), status);
  rdma_ack_cm_event(event);
  REQUIRE(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
}

static void by_calls(void) {
  struct rdma_cm_id *id;
  REQUIRE(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
  hurry(id);
  REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
  REQUIRE(rdma_resolve_route(id, 2000) == 0);
  int code = rdma_connect(id, &param);
  printf("a call that waits: %d %s\n", code, code ? strerrorname_np(errno) : "0");
  REQUIRE(rdma_destroy_id(id) == 0);
}

int main(int count, char **words) {
  REQUIRE(count == 2 && inet_pton(AF_INET, words[1], &address.sin_addr) == 1);
  address.sin_port = htons(7471);
  by_events("connections", RDMA_PS_TCP);
  by_events("datagrams", RDMA_PS_UDP);
  by_calls();
  return 0;
}
