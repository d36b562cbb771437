// connection_stages serve|ask ADDRESS tcp|udp STAGE [answer]: comes as far as STAGE with a connection, says
// "there", and from then on a line for each event: its name and its status. The passive side disconnects
// when its peer does. It has no queue pairs: each end makes up a number, and says itself that it is ready.
//
//   serve: listen, request, accept, established, part        ask: connect, reply, established, part
//
// A stage beyond what the peer lets happen is never reached.
#include "connections.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define IS(one, other) (strcmp(one, other) == 0)

static const char *stage;
static struct rdma_event_channel *channel;
static enum rdma_port_space space;
static int answers;

static void at(const char *reached) {
  if (IS(stage, reached)) puts("there");
}

static struct rdma_conn_param param(void) {
  return (struct rdma_conn_param){.qp_num = getpid() & 0xffffff, .retry_count = 7, .rnr_retry_count = 7};
}

static void begin_to_serve(char *address) {
  struct rdma_cm_id *listener;
  struct sockaddr_in local = address_of(address);
  REQUIRE(rdma_create_id(channel, &listener, NULL, space) == 0);
  REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&local) == 0 && rdma_listen(listener, 8) == 0);
  if (!IS(stage, "listen")) return;
  // The request comes, and is left where it is.
  struct pollfd waits = {.fd = channel->fd, .events = POLLIN};
  REQUIRE(poll(&waits, 1, -1) == 1);
  puts("there");
  while (poll(&waits, 1, 0) == 1) usleep(10000);
  puts("nothing waits");
}

static void begin_to_ask(char *address) {
  struct rdma_cm_id *id;
  struct sockaddr_in remote = address_of(address);
  REQUIRE(rdma_create_id(channel, &id, NULL, space) == 0);
  REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&remote, 2000) == 0);
}

// Goes one step further, unless this was the last one.
static void go_on(struct rdma_cm_id *id, enum rdma_cm_event_type event) {
  struct rdma_conn_param mine = param();
  switch (event) {
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    REQUIRE(rdma_resolve_route(id, 2000) == 0);
    break;
  case RDMA_CM_EVENT_ROUTE_RESOLVED:
    REQUIRE(rdma_connect(id, &mine) == 0);
    at("connect");
    break;
  case RDMA_CM_EVENT_CONNECT_REQUEST:
    at("request");
    if (IS(stage, "request")) break;
    REQUIRE(rdma_accept(id, &mine) == 0);
    at("accept");
    break;
  case RDMA_CM_EVENT_CONNECT_RESPONSE:
    at("reply");
    if (IS(stage, "reply")) break;
    REQUIRE(rdma_establish(id) == 0);
    // Nothing more comes: this end was ready first.
    __attribute__((fallthrough));
  case RDMA_CM_EVENT_ESTABLISHED:
    at("established");
    if (!IS(stage, "part")) break;
    REQUIRE(rdma_disconnect(id) == 0);
    puts("there");
    break;
  case RDMA_CM_EVENT_DISCONNECTED:
    if (answers) rdma_disconnect(id);
    break;
  default:
    break;
  }
}

int main(int count, char **words) {
  REQUIRE(count >= 5);
  setvbuf(stdout, NULL, _IOLBF, 0);
  stage = words[4], answers = count > 5;
  space = IS(words[3], "udp") ? RDMA_PS_UDP : RDMA_PS_TCP;
  REQUIRE((channel = rdma_create_event_channel()));
  if (IS(words[1], "serve")) begin_to_serve(words[2]);
  else begin_to_ask(words[2]);
  for (;;) {
    struct rdma_cm_event *event;
    REQUIRE(rdma_get_cm_event(channel, &event) == 0);
    struct rdma_cm_id *id = event->id;
    enum rdma_cm_event_type kind = event->event;
    printf("%s %d\n", rdma_event_str(kind) + strlen("RDMA_CM_EVENT_"), event->status);
    rdma_ack_cm_event(event);
    go_on(id, kind);
  }
}
