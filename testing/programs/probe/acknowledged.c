// acknowledged serve ADDRESS | acknowledged ask ADDRESS COUNT: a request that the peer has acknowledged is
// completed before its program hears that the connection is over. Each of COUNT connections carries one
// message, which the server acknowledges just before it parts. The client looks at nothing but events.
#include "connections.h"
#include <poll.h>
#include <string.h>

static char memory[64];

static int serve(struct rdma_event_channel *channel, const char *address) {
  struct sockaddr_in here = address_of(address);
  struct rdma_cm_id *listener;
  REQUIRE(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0 && rdma_listen(listener, 16) == 0);
  for (;;) {
    struct rdma_cm_event *event = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    struct ibv_qp_init_attr attr = attributes();
    struct rdma_conn_param param = {.rnr_retry_count = 7};
    REQUIRE(rdma_create_qp(id, NULL, &attr) == 0);
    struct ibv_mr *region = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge piece = {.addr = (uintptr_t)memory, .length = sizeof memory, .lkey = region->lkey};
    struct ibv_recv_wr receive = {.sg_list = &piece, .num_sge = 1}, *bad;
    REQUIRE(region && ibv_post_recv(id->qp, &receive, &bad) == 0 && rdma_accept(id, &param) == 0);
    rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ESTABLISHED));
    struct ibv_wc completion;
    while (ibv_poll_cq(id->recv_cq, 1, &completion) == 0)
      ;
    REQUIRE(completion.status == IBV_WC_SUCCESS && rdma_disconnect(id) == 0);
    rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_DISCONNECTED));
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
    ibv_dereg_mr(region);
  }
}

static void ask(struct rdma_event_channel *channel, const char *address, int *early) {
  struct sockaddr_in there = address_of(address);
  struct rdma_cm_id *id;
  REQUIRE(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, 2000) == 0);
  rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
  REQUIRE(rdma_resolve_route(id, 2000) == 0);
  rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
  struct ibv_qp_init_attr attr = attributes();
  struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
  REQUIRE(rdma_create_qp(id, NULL, &attr) == 0 && rdma_connect(id, &param) == 0);
  rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ESTABLISHED));
  struct ibv_mr *region = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_sge piece = {.addr = (uintptr_t)memory, .length = sizeof memory, .lkey = region->lkey};
  struct ibv_send_wr send = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  REQUIRE(region && ibv_req_notify_cq(id->send_cq, 0) == 0 && ibv_post_send(id->qp, &send, &bad) == 0);
  struct rdma_cm_event *event = await(channel, RDMA_CM_EVENT_DISCONNECTED);
  struct pollfd completed = {.fd = id->send_cq_channel->fd, .events = POLLIN};
  *early += poll(&completed, 1, 0) == 0;
  rdma_ack_cm_event(event);
  struct ibv_wc completion = {0};
  REQUIRE(ibv_poll_cq(id->send_cq, 1, &completion) == 1 && completion.status == IBV_WC_SUCCESS);
  struct ibv_cq *queue;
  void *context;
  if (poll(&completed, 1, 0) == 1) {
    REQUIRE(ibv_get_cq_event(id->send_cq_channel, &queue, &context) == 0);
    ibv_ack_cq_events(queue, 1);
  }
  rdma_disconnect(id);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
  ibv_dereg_mr(region);
}

int main(int argc, char **argv) {
  REQUIRE(argc > 2);
  struct rdma_event_channel *channel = rdma_create_event_channel();
  REQUIRE(channel);
  if (strcmp(argv[1], "serve") == 0)
    return serve(channel, argv[2]);
  int early = 0, count = atoi(argv[3]);
  for (int i = 0; i < count; i++)
    ask(channel, argv[2], &early);
  printf("of %d ends, %d came before the completion\n", count, early);
  return early != 0;
}
