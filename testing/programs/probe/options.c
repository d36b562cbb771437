// options ADDRESS: what the options of librdmacm do to a connection, here of one process with itself over
// the device that has ADDRESS: a line for each thing that both ends see, without what differs from run to
// run.
#include "connections.h"

#include <errno.h>
#include <string.h>

#define TOS 0x28
#define ACK_TIMEOUT 21

static struct rdma_event_channel *asking, *serving;
static struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = 0};

static struct rdma_cm_id *listen_somewhere(void) {
  struct rdma_cm_id *listener;
  REQUIRE(rdma_create_id(serving, &listener, NULL, RDMA_PS_TCP) == 0);
  address.sin_port = 0;
  REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 4) == 0);
  address.sin_port = rdma_get_src_port(listener);
  return listener;
}

static struct rdma_cm_id *routed(int with_options) {
  struct rdma_cm_id *id;
  REQUIRE(rdma_create_id(asking, &id, NULL, RDMA_PS_TCP) == 0);
  uint8_t tos = TOS, timeout = ACK_TIMEOUT;
  if (with_options) {
    REQUIRE(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) == 0);
    REQUIRE(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) == 0);
  }
  REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ADDR_RESOLVED));
  REQUIRE(rdma_resolve_route(id, 2000) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ROUTE_RESOLVED));
  return id;
}

static struct rdma_cm_id *request(void) {
  struct rdma_cm_event *event = await(serving, RDMA_CM_EVENT_CONNECT_REQUEST);
  struct rdma_cm_id *id = event->id;
  rdma_ack_cm_event(event);
  return id;
}

static struct ibv_qp_attr look(struct rdma_cm_id *id) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  REQUIRE(ibv_query_qp(id->qp, &attr, IBV_QP_AV | IBV_QP_TIMEOUT, &init) == 0);
  return attr;
}

static void say_code(const char *what, int code) {
  printf("%s: %s\n", what, code ? strerrorname_np(errno) : "done");
}

// The type of service goes with every packet, both ways; the time-out is the queue pair's.
static void service_and_timeout(void) {
  struct rdma_cm_id *listener = listen_somewhere(), *active = routed(1);
  struct ibv_sa_path_rec *path = active->route.path_rec;
  printf("path: traffic class %#x, packet lifetime %d\n", path->traffic_class, path->packet_life_time);
  furnish(active);
  struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 5};
  REQUIRE(rdma_connect(active, &param) == 0);
  struct rdma_cm_id *passive = request();
  furnish(passive);
  REQUIRE(rdma_accept(passive, &param) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ESTABLISHED));
  rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_ESTABLISHED));
  struct ibv_qp_attr one = look(active), other = look(passive);
  printf("active side: traffic class %#x, time-out %d\n", one.ah_attr.grh.traffic_class, one.timeout);
  printf("passive side: traffic class %#x\n", other.ah_attr.grh.traffic_class);
  uint32_t label = one.ah_attr.grh.flow_label;
  printf("flow labels: %s\n", label && label == other.ah_attr.grh.flow_label ? "the same" : "different");
  // What the peer takes the packets' lifetime for: the time-out it is told (IBTA 12.7.34).
  printf("the passive side waits %s than usual\n", other.timeout > ACK_TIMEOUT - 1 ? "longer" : "no longer");
  REQUIRE(rdma_disconnect(active) == 0);
  rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_DISCONNECTED));
  REQUIRE(rdma_disconnect(passive) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_DISCONNECTED));
  rdma_destroy_qp(active), rdma_destroy_qp(passive);
  REQUIRE(!rdma_destroy_id(active) && !rdma_destroy_id(passive) && !rdma_destroy_id(listener));
}

// What vendors tell each other, for programs that have queue pairs of their own.
static void enhanced(void) {
  struct rdma_cm_id *listener = listen_somewhere(), *active = routed(0);
  struct ibv_ece ours = {.vendor_id = 0x15b3, .options = 0x30000001}, theirs = {0}, bad = {0};
  say_code("ECE without a vendor", rdma_set_local_ece(active, &bad));
  say_code("ECE", rdma_set_local_ece(active, &ours));
  struct rdma_conn_param param = {.qp_num = 0x1234, .responder_resources = 1, .initiator_depth = 1};
  REQUIRE(rdma_connect(active, &param) == 0);
  struct rdma_cm_id *passive = request();
  REQUIRE(rdma_get_remote_ece(passive, &theirs) == 0);
  printf("the passive side sees vendor %#x, options %#x\n", theirs.vendor_id, theirs.options);
  ours.options = 1;
  REQUIRE(rdma_set_local_ece(passive, &ours) == 0);
  param.qp_num = 0x4321;
  REQUIRE(rdma_accept(passive, &param) == 0);
  rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_CONNECT_RESPONSE));
  REQUIRE(rdma_get_remote_ece(active, &theirs) == 0);
  printf("the active side sees vendor %#x, options %#x\n", theirs.vendor_id, theirs.options);
  say_code("established", rdma_establish(active));
  rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_ESTABLISHED));
  say_code("established twice", rdma_establish(active));
  REQUIRE(!rdma_destroy_id(active));
  rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_DISCONNECTED));
  REQUIRE(!rdma_destroy_id(passive) && !rdma_destroy_id(listener));

  listener = listen_somewhere(), active = routed(0);
  REQUIRE(rdma_connect(active, &param) == 0);
  passive = request();
  say_code("rejected for its options", rdma_reject_ece(passive, "why", 4));
  struct rdma_cm_event *event = await(asking, RDMA_CM_EVENT_REJECTED);
  printf("status %d, \"%s\"\n", event->status, (const char *)event->param.conn.private_data);
  rdma_ack_cm_event(event);
  furnish(active);
  say_code("ECE beside a queue pair", rdma_set_local_ece(active, &ours));
  rdma_destroy_qp(active);
  REQUIRE(!rdma_destroy_id(active) && !rdma_destroy_id(passive) && !rdma_destroy_id(listener));
}

int main(int count, char **words) {
  REQUIRE(count == 2 && inet_pton(AF_INET, words[1], &address.sin_addr) == 1);
  REQUIRE((asking = rdma_create_event_channel()) && (serving = rdma_create_event_channel()));
  service_and_timeout();
  enhanced();
  return 0;
}
