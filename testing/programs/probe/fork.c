// fork ADDRESS: a process with a connection forks; the child opens and closes a connection of its own, and
// the parent's keeps working. A thread of this process is the server. Prints the results.
#include "connections.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in address = {.sin_family = AF_INET};

static void *serve(void *channel) {
  serve_for_ever(channel);
  return NULL;
}

static struct rdma_cm_id *connection(void) {
  struct rdma_cm_id *id;
  struct ibv_qp_init_attr attr = attributes();
  struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
  REQUIRE(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
  REQUIRE(rdma_resolve_route(id, 2000) == 0);
  REQUIRE(rdma_create_qp(id, NULL, &attr) == 0);
  REQUIRE(rdma_connect(id, &param) == 0);
  return id;
}

static void part(struct rdma_cm_id *id) {
  REQUIRE(rdma_disconnect(id) == 0);
  rdma_destroy_qp(id);
  REQUIRE(rdma_destroy_id(id) == 0);
}

int main(int count, char **words) {
  REQUIRE(count == 2 && inet_pton(AF_INET, words[1], &address.sin_addr) == 1);
  setvbuf(stdout, NULL, _IONBF, 0);
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *listener;
  REQUIRE(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0 && rdma_listen(listener, 8) == 0);
  address.sin_port = rdma_get_src_port(listener);
  pthread_t server;
  REQUIRE(pthread_create(&server, NULL, serve, channel) == 0);
  struct rdma_cm_id *ours = connection();
  for (int i = 0; i < 3; i++) {
    int status;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (!child) {
      // What it inherited is its parent's: calls say so, and nothing is told to the peer.
      int code = rdma_disconnect(ours);
      printf("the parent's connection, of a child: %s\n", code ? strerrorname_np(errno) : "done");
      part(connection());
      printf("a child connected and parted\n");
      exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
  }
  part(ours);
  part(connection());
  printf("the parent did, too\n");
  return 0;
}
