// sockets: what calls on rsockets answer, between two threads of one program. It prints what it finds, and
// nothing that differs from run to run.
//
//   sockets ADDRESS
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PORT = 7301, BIG = 3 << 20, TIMEOUT_MS = 30000 };

static struct sockaddr_in address;
static int listener;

static void fail(const char *what) {
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

static void say(const char *what, long result) {
  if (result < 0) printf("%s: %s\n", what, strerror(errno));
  else printf("%s: %ld\n", what, result);
}

static int must(const char *what, long result) {
  if (result < 0) fail(what);
  return (int)result;
}

static void *accept_one(void *to) {
  *(int *)to = raccept(listener, NULL, NULL);
  return NULL;
}

// Two ends of a connection.
static void join(int ends[2], int bytes) {
  pthread_t thread;
  ends[0] = must("rsocket", rsocket(AF_INET, SOCK_STREAM, 0));
  if (bytes) must("SO_SNDBUF", rsetsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes));
  pthread_create(&thread, NULL, accept_one, &ends[1]);
  must("rconnect", rconnect(ends[0], (struct sockaddr *)&address, sizeof address));
  pthread_join(thread, NULL);
  must("raccept", ends[1]);
}

static void part(int ends[2]) {
  rclose(ends[0]);
  rclose(ends[1]);
}

static short wait_for(int fd, short events) {
  struct pollfd entry = {fd, events, 0};
  return rpoll(&entry, 1, TIMEOUT_MS) == 1 ? entry.revents : 0;
}

static void option(int fd, int level, int name, int value, const char *what) {
  int got = -1;
  socklen_t length = sizeof got;
  if (rsetsockopt(fd, level, name, &value, sizeof value)) return say(what, -1);
  if (rgetsockopt(fd, level, name, &got, &length)) return say(what, -1);
  // Sizes may be rounded up, as with sockets.
  say(what, got >= value);
}

static void options(void) {
  int fd = must("rsocket", rsocket(AF_INET, SOCK_STREAM, 0));
  option(fd, SOL_SOCKET, SO_SNDBUF, 200000, "SO_SNDBUF");
  option(fd, SOL_SOCKET, SO_RCVBUF, 200000, "SO_RCVBUF");
  option(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 7, "TCP_KEEPIDLE");
  option(fd, SOL_RDMA, RDMA_SQSIZE, 100, "RDMA_SQSIZE");
  option(fd, SOL_RDMA, RDMA_RQSIZE, 100, "RDMA_RQSIZE");
  option(fd, SOL_RDMA, RDMA_INLINE, 32, "RDMA_INLINE");
  option(fd, SOL_RDMA, RDMA_IOMAPSIZE, 8, "RDMA_IOMAPSIZE");
  struct linger linger = {1, 3}, got = {0, 0};
  socklen_t length = sizeof got;
  must("SO_LINGER", rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
  must("SO_LINGER", rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &length));
  printf("SO_LINGER: %d %d\n", got.l_onoff, got.l_linger);
  say("an unknown option", rsetsockopt(fd, SOL_SOCKET, 0x7777, &linger, sizeof linger));
  say("sending before connecting", rsend(fd, "x", 1, 0));
  rclose(fd);
}

static void flags(void) {
  int ends[2];
  char bytes[8] = "";
  join(ends, 0);
  say("nothing yet, MSG_DONTWAIT", rrecv(ends[1], bytes, 8, MSG_DONTWAIT));
  struct timeval time = {0, 20000};
  must("SO_RCVTIMEO", rsetsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
  say("nothing yet, SO_RCVTIMEO", rrecv(ends[1], bytes, 8, 0));
  time.tv_usec = 0;
  must("SO_RCVTIMEO", rsetsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
  struct iovec out[2] = {{"ab", 2}, {"cdef", 4}}, in[2] = {{bytes, 3}, {bytes + 3, 3}};
  say("rwritev", rwritev(ends[0], out, 2));
  say("readable", wait_for(ends[1], POLLIN) == POLLIN);
  say("MSG_PEEK", rrecv(ends[1], bytes, 6, MSG_PEEK));
  memset(bytes, 0, sizeof bytes);
  say("rreadv", rreadv(ends[1], in, 2));
  printf("%s\n", bytes);
  say("writable", wait_for(ends[1], POLLOUT) == POLLOUT);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(ends[1], &set);
  time.tv_usec = 1000;
  say("rselect, nothing to read", rselect(ends[1] + 1, &set, NULL, NULL, &time));
  part(ends);
}

static void *send_big(void *fd) {
  unsigned char *bytes = malloc(BIG);
  for (int i = 0; i < BIG; i++) bytes[i] = (unsigned char)(i * 31 + (i >> 8));
  say("all is sent", rsend(*(int *)fd, bytes, BIG, 0));
  free(bytes);
  return NULL;
}

static void much(void) {
  int ends[2], wrong = 0;
  pthread_t thread;
  unsigned char *bytes = malloc(BIG);
  join(ends, 65536);
  pthread_create(&thread, NULL, send_big, &ends[0]);
  long got = rrecv(ends[1], bytes, BIG, MSG_WAITALL);
  pthread_join(thread, NULL);
  say("MSG_WAITALL", got);
  for (int i = 0; i < BIG; i++) wrong += bytes[i] != (unsigned char)(i * 31 + (i >> 8));
  say("wrong bytes", wrong);
  free(bytes);
  part(ends);
}

static void closing(void) {
  int ends[2];
  char byte;
  join(ends, 0);
  say("SHUT_WR", rshutdown(ends[0], SHUT_WR));
  say("the peer reads its end", rrecv(ends[1], &byte, 1, 0));
  say("the peer still sends", rsend(ends[1], "x", 1, 0));
  say("and is heard", rrecv(ends[0], &byte, 1, 0));
  say("send after shutdown", rsend(ends[0], "x", 1, 0));
  rclose(ends[0]);
  say("end of all", (wait_for(ends[1], POLLIN) & POLLHUP) != 0);
  say("reading then", rrecv(ends[1], &byte, 1, 0));
  rclose(ends[1]);
}

static void nonblocking(void) {
  int fd = must("rsocket", rsocket(AF_INET, SOCK_STREAM, 0)), error = -1;
  struct sockaddr_in closed = address;
  socklen_t length = sizeof error;
  pthread_t thread;
  int accepted;
  must("O_NONBLOCK", rfcntl(fd, F_SETFL, O_NONBLOCK));
  pthread_create(&thread, NULL, accept_one, &accepted);
  // The connection may be there at once.
  int begun = rconnect(fd, (struct sockaddr *)&address, sizeof address);
  printf("rconnect has begun: %d\n", begun == 0 || errno == EINPROGRESS);
  say("connected", wait_for(fd, POLLOUT) == POLLOUT);
  must("SO_ERROR", rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
  say("SO_ERROR", error);
  pthread_join(thread, NULL);
  say("nothing to read", rrecv(fd, &error, 1, 0));
  rclose(fd);
  rclose(accepted);
  fd = must("rsocket", rsocket(AF_INET, SOCK_STREAM, 0));
  closed.sin_port = htons(PORT + 1);
  say("a port without a listener", rconnect(fd, (struct sockaddr *)&closed, sizeof closed));
  rclose(fd);
  fd = must("rsocket", rsocket(AF_INET, SOCK_STREAM, 0));
  say("a port in use", rbind(fd, (struct sockaddr *)&address, sizeof address));
  rclose(fd);
}

static void mapped(void) {
  int ends[2], size = 4;
  pthread_t thread;
  char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), byte;
  ends[0] = must("rsocket", rsocket(AF_INET, SOCK_STREAM, 0));
  must("RDMA_IOMAPSIZE", rsetsockopt(ends[0], SOL_RDMA, RDMA_IOMAPSIZE, &size, sizeof size));
  pthread_create(&thread, NULL, accept_one, &ends[1]);
  must("rconnect", rconnect(ends[0], (struct sockaddr *)&address, sizeof address));
  pthread_join(thread, NULL);
  say("riomap", riomap(ends[1], memory, 8192, PROT_WRITE, 0, 4096));
  say("a byte behind it", rsend(ends[1], "x", 1, 0));
  say("is read", rrecv(ends[0], &byte, 1, 0));
  say("riowrite", (long)riowrite(ends[0], "mapped", 7, 4096 + 100, 0));
  say("a byte behind it", rsend(ends[0], "x", 1, 0));
  say("is read", rrecv(ends[1], &byte, 1, 0));
  printf("%s\n", memory + 100);
  say("riounmap", riounmap(ends[1], memory, 8192));
  part(ends);
  munmap(memory, 8192);
}

int main(int count, char **words) {
  int size = 4;
  if (count != 2) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  address.sin_family = AF_INET;
  address.sin_port = htons(PORT);
  inet_pton(AF_INET, words[1], &address.sin_addr);
  listener = must("rsocket", rsocket(AF_INET, SOCK_STREAM, 0));
  must("RDMA_IOMAPSIZE", rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &size, sizeof size));
  must("rbind", rbind(listener, (struct sockaddr *)&address, sizeof address));
  must("rlisten", rlisten(listener, 5));
  options();
  flags();
  much();
  closing();
  nonblocking();
  mapped();
  rclose(listener);
  return 0;
}
