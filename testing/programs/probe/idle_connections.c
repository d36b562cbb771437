// idle_connections ADDRESS PORT COUNT: makes COUNT connections, one after the other, and sends nothing over
// them. Prints how many were established and how many were rejected, keeps them, and ends when it is killed.
#include "connections.h"
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int count, char **words) {
  REQUIRE(count == 4);
  struct sockaddr_in to = address_of(words[1]);
  to.sin_port = htons(atoi(words[2]));
  int wanted = atoi(words[3]), established = 0, rejected = 0;
  // A channel for each connection, so that events name it.
  struct rlimit limit = {16 * wanted, 16 * wanted};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int i = 0; i < wanted; i++) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    REQUIRE(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000) == 0);
    rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    REQUIRE(rdma_resolve_route(id, 2000) == 0);
    rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    furnish(id);
    struct rdma_conn_param param = {.initiator_depth = 1, .responder_resources = 1, .retry_count = 7};
    REQUIRE(rdma_connect(id, &param) == 0);
    struct rdma_cm_event *event;
    REQUIRE(rdma_get_cm_event(channel, &event) == 0);
    enum rdma_cm_event_type kind = event->event;
    rdma_ack_cm_event(event);
    if (kind == RDMA_CM_EVENT_ESTABLISHED) {
      established++;
    } else if (kind == RDMA_CM_EVENT_REJECTED) {
      rejected++;
      rdma_destroy_qp(id);
      rdma_destroy_id(id);
      rdma_destroy_event_channel(channel);
    } else {
      fprintf(stderr, "connection %d: %s\n", i, rdma_event_str(kind));
      return 1;
    }
  }
  printf("established %d, rejected %d\n", established, rejected);
  fflush(stdout);
  pause();
}
