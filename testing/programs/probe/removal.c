// removal ADDRESS: connects two identifiers of this process over the device that has the address, binds and
// resolves others, prints "ready", and then prints the events of all of them when the device's interface is
// deleted: those of the identifiers, and the device's own asynchronous events.
#include "connections.h"

#include <poll.h>
#include <string.h>

int main(int argc, char **argv) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7000)};
  if (argc != 2 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
    fprintf(stderr, "removal ADDRESS\n");
    return 2;
  }
  struct rdma_event_channel *serving = rdma_create_event_channel(), *asking = rdma_create_event_channel();
  struct rdma_event_channel *accepted = rdma_create_event_channel();
  struct rdma_event_channel *idle = rdma_create_event_channel(), *anywhere = rdma_create_event_channel();
  struct rdma_cm_id *listener, *active, *passive, *bound, *wild;
  REQUIRE(rdma_create_id(serving, &listener, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 1) == 0);
  REQUIRE(rdma_create_id(asking, &active, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_resolve_addr(active, NULL, (struct sockaddr *)&address, 2000) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ADDR_RESOLVED));
  REQUIRE(rdma_resolve_route(active, 2000) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ROUTE_RESOLVED));
  furnish(active);
  struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
  REQUIRE(rdma_connect(active, &param) == 0);
  struct rdma_cm_event *event = await(serving, RDMA_CM_EVENT_CONNECT_REQUEST);
  passive = event->id;
  rdma_ack_cm_event(event);
  furnish(passive);
  REQUIRE(rdma_accept(passive, &param) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ESTABLISHED));
  rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_ESTABLISHED));
  REQUIRE(rdma_migrate_id(passive, accepted) == 0);
  REQUIRE(rdma_create_id(idle, &bound, NULL, RDMA_PS_TCP) == 0);
  address.sin_port = 0;
  REQUIRE(rdma_bind_addr(bound, (struct sockaddr *)&address) == 0);
  REQUIRE(rdma_create_id(anywhere, &wild, NULL, RDMA_PS_TCP) == 0);
  address.sin_addr.s_addr = INADDR_ANY;
  REQUIRE(rdma_bind_addr(wild, (struct sockaddr *)&address) == 0 && rdma_listen(wild, 1) == 0);
  puts("ready");
  fflush(stdout);

  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_DEVICE_REMOVAL));
  puts("the active side is told");
  rdma_ack_cm_event(await(accepted, RDMA_CM_EVENT_DEVICE_REMOVAL));
  puts("the passive side is told");
  rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_DEVICE_REMOVAL));
  puts("the listener is told");
  rdma_ack_cm_event(await(idle, RDMA_CM_EVENT_DEVICE_REMOVAL));
  puts("an id that is only bound is told");
  struct pollfd waits = {.fd = anywhere->fd, .events = POLLIN};
  puts(poll(&waits, 1, 0) == 0 ? "a listener at any address goes on" : "a listener at any address is told");
  struct ibv_async_event news;
  do {
    REQUIRE(ibv_get_async_event(active->verbs, &news) == 0);
    ibv_ack_async_event(&news);
  } while (news.event_type != IBV_EVENT_DEVICE_FATAL);
  puts("the device says so itself");
  rdma_destroy_qp(active), rdma_destroy_qp(passive);
  REQUIRE(rdma_destroy_id(active) == 0 && rdma_destroy_id(passive) == 0 && rdma_destroy_id(listener) == 0);
  REQUIRE(rdma_destroy_id(bound) == 0 && rdma_destroy_id(wild) == 0);
  puts("all is given back");
  return 0;
}
