// connections.h: what probes of RDMA-CM have in common.
#pragma once
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>

#define PORT 7471
#define REQUIRE(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static inline struct sockaddr_in address_of(const char *text) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  REQUIRE(inet_pton(AF_INET, text, &address.sin_addr) == 1);
  return address;
}

// Of a queue pair whose completion queues rdma_create_qp makes.
static inline struct ibv_qp_init_attr attributes(void) {
  return (struct ibv_qp_init_attr){.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
}

// A queue pair with a completion queue that is not polled.
static inline void furnish(struct rdma_cm_id *id) {
  struct ibv_qp_init_attr attr = attributes();
  REQUIRE((attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0)));
  REQUIRE(rdma_create_qp(id, NULL, &attr) == 0);
}

// The next event, which has to be this one.
static inline struct rdma_cm_event *await(struct rdma_event_channel *channel, enum rdma_cm_event_type kind) {
  struct rdma_cm_event *event;
  REQUIRE(rdma_get_cm_event(channel, &event) == 0);
  if (event->event != kind) {
    fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(kind));
    exit(1);
  }
  return event;
}

// Accepts every connection, and destroys it when its peer disconnects; for ever.
static inline void serve_for_ever(struct rdma_event_channel *channel) {
  for (;;) {
    struct rdma_cm_event *event;
    REQUIRE(rdma_get_cm_event(channel, &event) == 0);
    struct rdma_cm_id *id = event->id;
    enum rdma_cm_event_type kind = event->event;
    rdma_ack_cm_event(event);
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
      struct ibv_qp_init_attr attr = attributes();
      struct rdma_conn_param param = {.rnr_retry_count = 7};
      REQUIRE(rdma_create_qp(id, NULL, &attr) == 0 && rdma_accept(id, &param) == 0);
    } else if (kind == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_disconnect(id);
      rdma_destroy_qp(id);
      rdma_destroy_id(id);
    }
  }
}
