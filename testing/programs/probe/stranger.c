// stranger ADDRESS PORT COUNT KIND: makes COUNT SMB Direct connections, negotiates over each, and sets up no
// session. KIND is what each sends then: `silent` nothing; `write` and `read` requests with a descriptor of
// 8 MiB; `many` WRITEs with 4,000 descriptors. Prints how many connections were made, and keeps them.
#include "connections.h"
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SIZE 8192
#define RECEIVES 16
#define LARGE (8 << 20)
#define DESCRIPTORS 4000

struct peer {
  struct rdma_cm_id *id;
  struct rdma_event_channel *channel;
  struct ibv_mr *messages, *data;
  char *memory;
  int credits;
};

static char *data;

static void put16(char *at, uint16_t value) { memcpy(at, &value, 2); }
static void put32(char *at, uint32_t value) { memcpy(at, &value, 4); }
static void put64(char *at, uint64_t value) { memcpy(at, &value, 8); }

static int event_is(struct peer *peer, enum rdma_cm_event_type kind) {
  struct pollfd waits = {.fd = peer->channel->fd, .events = POLLIN};
  struct rdma_cm_event *event;
  if (poll(&waits, 1, 20000) <= 0 || rdma_get_cm_event(peer->channel, &event))
    return 0;
  int same = event->event == kind;
  rdma_ack_cm_event(event);
  return same;
}

static int complete(struct ibv_cq *queue, struct ibv_wc *done) {
  for (int turn = 0; turn < 20000; turn++) {
    int count = ibv_poll_cq(queue, 1, done);
    if (count)
      return count > 0 && done->status == IBV_WC_SUCCESS;
    usleep(500);
  }
  return 0;
}

static void post(struct peer *peer, int place) {
  struct ibv_sge piece = {(uintptr_t)peer->memory + place * SIZE, SIZE, peer->messages->lkey};
  struct ibv_recv_wr receive = {.wr_id = place, .sg_list = &piece, .num_sge = 1}, *bad;
  ibv_post_recv(peer->id->qp, &receive, &bad);
}

// Sends the message behind the receives.
static int send_message(struct peer *peer, int length) {
  struct ibv_sge piece = {(uintptr_t)peer->memory + RECEIVES * SIZE, length, peer->messages->lkey};
  struct ibv_send_wr send = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  struct ibv_wc done;
  return !ibv_post_send(peer->id->qp, &send, &bad) && complete(peer->id->send_cq, &done);
}

static int connect_to(struct peer *peer, struct sockaddr_in *to) {
  REQUIRE((peer->channel = rdma_create_event_channel()));
  if (rdma_create_id(peer->channel, &peer->id, NULL, RDMA_PS_TCP))
    return 0;
  if (rdma_resolve_addr(peer->id, NULL, (struct sockaddr *)to, 5000))
    return 0;
  if (!event_is(peer, RDMA_CM_EVENT_ADDR_RESOLVED))
    return 0;
  if (rdma_resolve_route(peer->id, 5000) || !event_is(peer, RDMA_CM_EVENT_ROUTE_RESOLVED))
    return 0;
  struct ibv_qp_init_attr attr = attributes();
  attr.cap.max_send_wr = attr.cap.max_recv_wr = RECEIVES;
  if (rdma_create_qp(peer->id, NULL, &attr))
    return 0;
  int length = (RECEIVES + 1) * SIZE;
  REQUIRE((peer->memory = aligned_alloc(4096, length)));
  REQUIRE((peer->messages = ibv_reg_mr(peer->id->pd, peer->memory, length, IBV_ACCESS_LOCAL_WRITE)));
  for (int place = 0; place < RECEIVES; place++)
    post(peer, place);
  struct rdma_conn_param param = {.initiator_depth = 16, .responder_resources = 16, .retry_count = 7};
  param.rnr_retry_count = 7;
  return !rdma_connect(peer->id, &param) && event_is(peer, RDMA_CM_EVENT_ESTABLISHED);
}

static int negotiate(struct peer *peer) {
  char *message = peer->memory + RECEIVES * SIZE;
  memset(message, 0, 20);
  put16(message, 0x100);
  put16(message + 2, 0x100);
  put16(message + 6, RECEIVES);
  put32(message + 8, SIZE);
  put32(message + 12, SIZE);
  put32(message + 16, 1 << 20);
  struct ibv_wc done;
  if (!send_message(peer, 20) || !complete(peer->id->recv_cq, &done))
    return 0;
  uint16_t credits;
  memcpy(&credits, peer->memory + done.wr_id * SIZE + 10, 2);
  peer->credits = credits;
  post(peer, done.wr_id);
  return 1;
}

// A fragment of an SMB 2 message, of which `rest` bytes follow in later ones.
static int fragment(struct peer *peer, const char *bytes, int length, int rest) {
  char *message = peer->memory + RECEIVES * SIZE;
  if (peer->credits-- <= 0)
    return 0;
  memset(message, 0, 24);
  put16(message, RECEIVES);
  put32(message + 8, rest);
  put32(message + 12, 24);
  put32(message + 16, length);
  memcpy(message + 24, bytes, length);
  return send_message(peer, 24 + length);
}

static void request(struct peer *peer, int command, int descriptors, int number) {
  int length = 112 + 16 * descriptors;
  char *bytes = calloc(1, length);
  memcpy(bytes, "\xfeSMB", 4);
  put16(bytes + 4, 64);
  put16(bytes + 12, command);
  put64(bytes + 24, number);
  put16(bytes + 64, 49);
  // Length of a READ, RemainingBytes of a WRITE; Channel, ChannelInfoOffset and ChannelInfoLength.
  int is_write = command == 9;
  put32(bytes + (is_write ? 100 : 68), LARGE);
  put32(bytes + (is_write ? 96 : 100), 1);
  put16(bytes + (is_write ? 104 : 108), 112);
  put16(bytes + (is_write ? 106 : 110), 16 * descriptors);
  for (int index = 0; index < descriptors; index++) {
    char *at = bytes + 112 + 16 * index;
    put64(at, (uintptr_t)data);
    put32(at + 8, peer->data->rkey);
    put32(at + 12, LARGE / descriptors + (index == 0 ? LARGE % descriptors : 0));
  }
  int most = SIZE - 24;
  for (int at = 0; at < length; at += most) {
    int now = length - at < most ? length - at : most;
    if (!fragment(peer, bytes + at, now, length - at - now))
      break;
  }
  free(bytes);
}

int main(int count, char **words) {
  REQUIRE(count == 5);
  struct sockaddr_in to = address_of(words[1]);
  to.sin_port = htons(atoi(words[2]));
  int wanted = atoi(words[3]), made = 0, attempts = 0;
  struct rlimit limit = {16 * wanted + 64, 16 * wanted + 64};
  setrlimit(RLIMIT_NOFILE, &limit);
  REQUIRE((data = aligned_alloc(2 << 20, LARGE)));
  memset(data, 0x41, LARGE);
  while (attempts++ < wanted) {
    struct peer peer = {0};
    if (!connect_to(&peer, &to) || !negotiate(&peer))
      continue;
    made++;
    if (strcmp(words[4], "silent") == 0)
      continue;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    REQUIRE((peer.data = ibv_reg_mr(peer.id->pd, data, LARGE, access)));
    int command = strcmp(words[4], "read") == 0 ? 8 : 9;
    int pieces = strcmp(words[4], "many") == 0 ? DESCRIPTORS : 1;
    for (int number = 1; number <= 3; number++)
      request(&peer, command, pieces, number);
  }
  printf("made %d of %d\n", made, wanted);
  fflush(stdout);
  pause();
}
