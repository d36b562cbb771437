// requested ADDRESS: listens, prints what the first connection request says of RDMA READs, and rejects it.
#include "connections.h"

int main(int argc, char **argv) {
  REQUIRE(argc == 2);
  struct sockaddr_in here = address_of(argv[1]);
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *listener;
  REQUIRE(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0 && rdma_listen(listener, 4) == 0);
  struct rdma_cm_event *event = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  struct rdma_conn_param *asked = &event->param.conn;
  printf("responder resources %u, initiator depth %u\n", asked->responder_resources, asked->initiator_depth);
  REQUIRE(rdma_reject(event->id, NULL, 0) == 0);
  rdma_ack_cm_event(event);
  return 0;
}
