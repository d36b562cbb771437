// cm_churn serve ADDRESS: accepts connections by RDMA-CM for ever; destroys each when its peer disconnects.
// cm_churn ask ADDRESS COUNT ROUNDS RATE SECONDS: opens COUNT connections at once and closes them, so often,
// and then opens and closes RATE a second for a while.
//
// When no connection is open, and a thousand were closed since the last report, both print what they and the
// agent of their network namespace hold (descriptors, mappings, memory).
#include "connections.h"
#include "holdings.h"

#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Requests without an answer at a time: fewer than a listener lets wait.
#define WINDOW 256

static struct rdma_event_channel *channel;
static struct ibv_cq *cq;
static int is_open, asked, closed;

// All share one completion queue.
static void equip(struct rdma_cm_id *id) {
  if (!cq) REQUIRE((cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0)));
  struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
    .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  REQUIRE(rdma_create_qp(id, NULL, &attr) == 0);
}

static void ask(struct sockaddr_in *peer) {
  struct rdma_cm_id *id;
  REQUIRE(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)peer, 2000) == 0);
  asked++;
}

static void let_go(struct rdma_cm_id *id) {
  rdma_destroy_qp(id);
  REQUIRE(rdma_destroy_id(id) == 0);
  closed++;
  if (--is_open || asked || closed < 1000) return;
  closed = 0;
  print_holdings("none is open", look());
}

// Handles one event. Open connections are collected, or closed at once without an array for them.
static void handle(struct rdma_cm_id **kept) {
  struct rdma_cm_event *event;
  REQUIRE(rdma_get_cm_event(channel, &event) == 0);
  struct rdma_cm_id *id = event->id;
  enum rdma_cm_event_type kind = event->event;
  rdma_ack_cm_event(event);
  struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
  switch (kind) {
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    REQUIRE(rdma_resolve_route(id, 2000) == 0);
    break;
  case RDMA_CM_EVENT_ROUTE_RESOLVED:
    equip(id);
    REQUIRE(rdma_connect(id, &param) == 0);
    break;
  case RDMA_CM_EVENT_CONNECT_REQUEST:
    equip(id);
    is_open++;
    REQUIRE(rdma_accept(id, &param) == 0);
    break;
  case RDMA_CM_EVENT_ESTABLISHED:
    if (!asked) break;  // a peer asked, and is ready
    asked--;
    if (kept) kept[is_open] = id;
    is_open++;
    if (!kept) REQUIRE(rdma_disconnect(id) == 0);
    break;
  case RDMA_CM_EVENT_DISCONNECTED:
    rdma_disconnect(id);
    let_go(id);
    break;
  case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    break;
  default:
    fprintf(stderr, "%s, status %d\n", rdma_event_str(kind), event->status);
    exit(1);
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static void all_at_once(struct sockaddr_in *peer, int count) {
  struct rdma_cm_id **kept = calloc(count, sizeof *kept);
  REQUIRE(kept);
  for (int begun = 0; is_open < count; handle(kept))
    for (; begun < count && asked < WINDOW; begun++) ask(peer);
  printf("%d are open\n", is_open);
  for (int i = 0; i < count; i++) REQUIRE(rdma_disconnect(kept[i]) == 0);
  free(kept);
  while (is_open) handle(NULL);
}

static void at_a_rate(struct sockaddr_in *peer, int rate, int seconds) {
  double begin = now();
  int begun = 0;
  while (begun < rate * seconds || asked || is_open) {
    int due = (now() - begin) * rate;
    if (due > rate * seconds) due = rate * seconds;
    for (; begun < due && asked < WINDOW; begun++) ask(peer);
    struct pollfd waits = {.fd = channel->fd, .events = POLLIN};
    if (poll(&waits, 1, 1) == 1) handle(NULL);
  }
  printf("%.0f a second were opened and closed\n", begun / (now() - begin));
  print_holdings("none is open", look());
}

int main(int count, char **words) {
  REQUIRE(count >= 3);
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct sockaddr_in address = address_of(words[2]);
  REQUIRE((channel = rdma_create_event_channel()));
  if (strcmp(words[1], "serve") == 0) {
    struct rdma_cm_id *listener;
    REQUIRE(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 1024) == 0);
    for (;;) handle(NULL);
  }
  REQUIRE(count == 7);
  for (int round = 0; round < atoi(words[4]); round++) all_at_once(&address, atoi(words[3]));
  at_a_rate(&address, atoi(words[5]), atoi(words[6]));
  return 0;
}
