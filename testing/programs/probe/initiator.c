// initiator ADDRESS: an XRC connection through RDMA-CM, both ends in this process. The initiator's event has
// to name the target's queue pair, which a REP carries in a field of its own (the EECN, IBTA A14.3.2).
#include "connections.h"
#include <rdma/rdma_verbs.h>
#include <string.h>

static struct rdma_cm_id *endpoint(const char *address, int type, int flags) {
  struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP, .ai_qp_type = type}, *info;
  REQUIRE(rdma_getaddrinfo(address, "7471", &hints, &info) == 0);
  struct rdma_cm_id *id;
  REQUIRE(rdma_create_ep(&id, info, NULL, NULL) == 0);
  rdma_freeaddrinfo(info);
  return id;
}

int main(int argc, char **argv) {
  REQUIRE(argc == 2);
  struct rdma_event_channel *passive = rdma_create_event_channel(), *active = rdma_create_event_channel();
  struct rdma_cm_id *listener = endpoint(argv[1], IBV_QPT_XRC_RECV, RAI_PASSIVE);
  REQUIRE(passive && active && rdma_migrate_id(listener, passive) == 0 && rdma_listen(listener, 1) == 0);

  struct rdma_cm_id *initiator = endpoint(argv[1], IBV_QPT_XRC_SEND, 0);
  REQUIRE(rdma_migrate_id(initiator, active) == 0);
  struct ibv_qp_init_attr sends = {.cap = {4, 0, 1, 0, 0}, .qp_type = IBV_QPT_XRC_SEND};
  REQUIRE((sends.send_cq = ibv_create_cq(initiator->verbs, 8, NULL, NULL, 0)));
  REQUIRE(rdma_create_qp(initiator, NULL, &sends) == 0);
  struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
  REQUIRE(rdma_connect(initiator, &param) == 0);

  struct rdma_cm_event *event = await(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  struct rdma_cm_id *target = event->id;
  printf("the request names the initiator: %s\n",
         event->param.conn.qp_num == initiator->qp->qp_num ? "yes" : "no");
  rdma_ack_cm_event(event);
  struct ibv_qp_init_attr receives = {.qp_type = IBV_QPT_XRC_RECV};
  REQUIRE(rdma_create_qp(target, NULL, &receives) == 0 && rdma_accept(target, &param) == 0);
  event = await(active, RDMA_CM_EVENT_ESTABLISHED);
  printf("the reply names the target: %s\n", event->param.conn.qp_num == target->qp->qp_num ? "yes" : "no");
  rdma_ack_cm_event(event);
  event = await(passive, RDMA_CM_EVENT_ESTABLISHED);
  printf("the target's event has private data: %s\n", event->param.conn.private_data_len ? "yes" : "no");
  rdma_ack_cm_event(event);
  rdma_destroy_qp(initiator), rdma_destroy_id(initiator);
  rdma_destroy_qp(target), rdma_destroy_id(target);
  rdma_destroy_id(listener);
  return 0;
}
