// limits: what UDP sockets give without anything above them, for the bench to hold rockery against.
//
//   limits sink                          receives with GRO until nothing came for half a second: Gb/s
//   limits source ADDRESS SEGMENT SECONDS  sends with GSO, as many segments of so many bytes as fit one call
//   limits pong                          answers each datagram until nothing came for half a second
//   limits ping ADDRESS BYTES COUNT      one way, half a round trip: p50 and p99 in microseconds
//   limits copy BYTES                    process_vm_writev into a child, again and again
//   limits memcpy BYTES                  memcpy between two mappings of files in memory, as two programs have
//   limits ring BYTES                    memcpy into a ring by one process, and out of it by another
//   limits relay BYTES                   the same with a third process, which copies from one ring to another
//   limits relay-ping COUNT              64 bytes through both rings and back through two others: p50
//   limits wake COUNT                    two processes that sleep wake each other by eventfds: p50, one way
//
// Both ends spin, but for those that are woken. `copy`, `memcpy`, `ring` and `relay` use one buffer again and
// again.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT 4790                // beside the one that rockery has
#define SEND_BYTES_MAX 65473
#define SEGMENTS_MAX 64
#define QUIET_S 0.5
#define COPY_S 0.5
#define COPY_MAX (4 << 20)
#define CACHE_LINE 64
#define RING_PIECE (64 << 10)  // half of an L2 cache holds a few of them
#define RING_PIECES 8

static char buffer[1 << 17];

static void check(int bad, const char *what) {
  if (!bad) return;
  fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static int make_socket(int bound) {
  int fd = socket(AF_INET, SOCK_DGRAM, 0), yes = 1, bytes = 8 << 20, discover = IP_PMTUDISC_DO;
  check(fd < 0, "socket");
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes))
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes))
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  if (bound) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    check(setsockopt(fd, IPPROTO_UDP, UDP_GRO, &yes, sizeof yes), "UDP_GRO");
    check(bind(fd, (void *)&any, sizeof any), "bind");
  }
  return fd;
}

static struct sockaddr_in address(const char *text) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  check(inet_pton(AF_INET, text, &to.sin_addr) != 1, text);
  return to;
}

// Until something comes, or has not come for too long.
static ssize_t take(int fd, struct sockaddr_in *from, double since) {
  for (;;) {
    socklen_t length = sizeof *from;
    ssize_t got = recvfrom(fd, buffer, sizeof buffer, MSG_DONTWAIT, (void *)from, from ? &length : NULL);
    if (got >= 0) return got;
    if (since && now() - since > QUIET_S) return -1;
  }
}

static void sink(void) {
  int fd = make_socket(1);
  double first = 0, last = 0, bytes = 0;
  puts("ready");
  fflush(stdout);
  for (ssize_t got; (got = take(fd, NULL, last)) >= 0; bytes += got) {
    last = now();
    if (!first) first = last;
  }
  printf("gigabits per second: %.2f\n", bytes * 8 / (last - first) / 1e9);
}

static void source(const char *to_text, int segment, double seconds) {
  int fd = make_socket(0);
  struct sockaddr_in to = address(to_text);
  int most = SEND_BYTES_MAX / segment;
  struct iovec piece = {buffer, (size_t)segment * (most < SEGMENTS_MAX ? most : SEGMENTS_MAX)};
  char control[CMSG_SPACE(sizeof(short))] = {0};
  struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &piece, .msg_iovlen = 1,
                           .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_UDP;
  header->cmsg_type = UDP_SEGMENT;
  header->cmsg_len = CMSG_LEN(sizeof(short));
  memcpy(CMSG_DATA(header), &(unsigned short){segment}, sizeof(short));
  for (double end = now() + seconds; now() < end;)
    check(sendmsg(fd, &message, 0) < 0 && errno != ENOBUFS && errno != EAGAIN, "sendmsg");
}

static void pong(void) {
  int fd = make_socket(1);
  struct sockaddr_in from;
  puts("ready");
  fflush(stdout);
  double last = 0;
  for (ssize_t got; (got = take(fd, &from, last)) >= 0; last = now())
    check(sendto(fd, buffer, got, 0, (void *)&from, sizeof from) < 0, "sendto");
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void ping(const char *to_text, int bytes, int count) {
  int fd = make_socket(0);
  struct sockaddr_in to = address(to_text);
  double *times = calloc(count, sizeof *times);
  check(!times, "memory");
  for (int i = 0; i < count; i++) {
    double start = now();
    check(sendto(fd, buffer, bytes, 0, (void *)&to, sizeof to) < 0, "sendto");
    check(take(fd, NULL, start) < 0, "no answer");
    times[i] = (now() - start) / 2 * 1e6;
  }
  qsort(times, count, sizeof *times, by_value);
  printf("microseconds p50: %.2f\nmicroseconds p99: %.2f\n", times[count / 2], times[count / 100 * 99]);
}

// Half a second of copies into the memory of another process, which has memory of its own behind the address.
static void copy(size_t bytes) {
  unsigned char *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(place == MAP_FAILED, "mmap");
  static unsigned char source[COPY_MAX];
  int done[2];
  check(pipe(done), "pipe");
  pid_t child = fork();
  if (!child) {
    memset(place, 1, bytes);
    char token = 0;
    _exit(write(done[1], &token, 1) != 1 || pause());
  }
  char token;
  check(read(done[0], &token, 1) != 1, "the child");
  struct iovec ours = {source, bytes}, theirs = {place, bytes};
  long count = 0;
  double start = now(), end;
  do {
    for (int i = 0; i < 100; i++)
      check(process_vm_writev(child, &ours, 1, &theirs, 1, 0) != (ssize_t)bytes, "process_vm_writev");
    count += 100;
    end = now();
  } while (end - start < COPY_S);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  printf("gigabytes per second: %.3f\n", count * (double)bytes / (end - start) / 1e9);
  printf("microseconds: %.3f\n", (end - start) / count * 1e6);
}

// A file in memory that is mapped and touched.
static void *mapped_file(size_t bytes) {
  int fd = memfd_create("limits", 0);
  check(fd < 0 || ftruncate(fd, bytes), "memfd_create");
  void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  check(place == MAP_FAILED, "mmap");
  close(fd);
  return memset(place, 1, bytes);
}

// Half a second of copies from one mapping to another.
static void between_mappings(size_t bytes) {
  unsigned char *from = mapped_file(bytes), *to = mapped_file(bytes);
  long count = 0;
  double start = now(), end;
  do {
    for (int i = 0; i < 100; i++) {
      memcpy(to, from, bytes);
      __asm__ volatile("" ::: "memory");  // so that no copy is left out
    }
    count += 100;
    end = now();
  } while (end - start < COPY_S);
  printf("gigabytes per second: %.3f\n", count * (double)bytes / (end - start) / 1e9);
}

// How many pieces went in, and how many came out, each on a cache line of its own.
struct ring {
  volatile long in;
  char after_in[CACHE_LINE - sizeof(long)];
  volatile long out;
  char after_out[CACHE_LINE - sizeof(long)];
  unsigned char pieces[];
};

// Waits until a piece went in or came out. A process that waits long leaves its processor to the other.
static void await(volatile long *counter, long at_least) {
  for (int turns = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) < at_least; turns++) {
    if (turns > 2000) sched_yield();
  }
}

// Copies pieces from memory into a ring, from `from` on as many as `count`.
static void fill(struct ring *ring, const unsigned char *source, size_t piece, long each, long from,
                 long count) {
  for (long next = from; next < from + count; next++) {
    await(&ring->out, next + 1 - RING_PIECES);
    memcpy(ring->pieces + next % RING_PIECES * piece, source + next % each * piece, piece);
    __atomic_store_n(&ring->in, next + 1, __ATOMIC_RELEASE);
  }
}

// Copies pieces out of a ring, for ever.
static void drain(struct ring *ring, unsigned char *target, size_t piece, long each) {
  for (long next = 0;; next++) {
    await(&ring->in, next + 1);
    memcpy(target + next % each * piece, ring->pieces + next % RING_PIECES * piece, piece);
    __atomic_store_n(&ring->out, next + 1, __ATOMIC_RELEASE);
  }
}

// Moves a piece from one ring to the other, if there is one.
static void move(struct ring *from, struct ring *to, size_t piece) {
  long next = from->out;
  if (__atomic_load_n(&from->in, __ATOMIC_ACQUIRE) == next) return;
  if (__atomic_load_n(&to->out, __ATOMIC_ACQUIRE) < next + 1 - RING_PIECES) return;
  memcpy(to->pieces + next % RING_PIECES * piece, from->pieces + next % RING_PIECES * piece, piece);
  __atomic_store_n(&to->in, next + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&from->out, next + 1, __ATOMIC_RELEASE);
}

static struct ring *make_ring(size_t piece) {
  struct ring *ring = mapped_file(sizeof *ring + piece * RING_PIECES);
  ring->in = ring->out = 0;
  return ring;
}

// Moves pieces between pairs of rings in a process of its own. One that finds nothing leaves its processor.
static pid_t relay(struct ring *rings[][2], int pairs, size_t piece) {
  pid_t child = fork();
  if (child) return child;
  for (long turns = 0;; turns++) {
    for (int pair = 0; pair < pairs; pair++) {
      long before = rings[pair][0]->out;
      move(rings[pair][0], rings[pair][1], piece);
      if (rings[pair][0]->out != before) turns = 0;
    }
    if (turns > 2000) sched_yield();
  }
}

// Half a second of messages through a ring, or two with a process between them: each is a further memory
// copy, which runs on another processor.
static void through_rings(size_t bytes, int relayed) {
  size_t piece = bytes < RING_PIECE ? bytes : RING_PIECE;
  check(bytes % piece, "BYTES: a power of two");
  long each = bytes / piece;
  struct ring *first = make_ring(piece), *last = relayed ? make_ring(piece) : first;
  static unsigned char source[COPY_MAX], target[COPY_MAX];
  memset(source, 1, sizeof source);
  memset(target, 1, sizeof target);
  struct ring *pairs[1][2] = {{first, last}};
  pid_t between = relayed ? relay(pairs, 1, piece) : 0;
  pid_t taker = fork();
  if (!taker) drain(last, target, piece, each);
  long next = 0;
  double start = now(), end;
  do {
    fill(first, source, piece, each, next, 100 * each);
    next += 100 * each;
    await(&last->out, next);
    end = now();
  } while (end - start < COPY_S);
  for (int i = 0; i < 1 + relayed; i++) kill(i ? between : taker, SIGKILL);
  while (wait(NULL) > 0);
  printf("gigabytes per second: %.3f\n", next / each * (double)bytes / (end - start) / 1e9);
}

// Small messages through both rings of a relay and back through two others.
static void relay_ping(int count) {
  const size_t piece = 64;
  struct ring *there[2] = {make_ring(piece), make_ring(piece)};
  struct ring *back[2] = {make_ring(piece), make_ring(piece)};
  struct ring *pairs[2][2] = {{there[0], there[1]}, {back[0], back[1]}};
  struct ring *answer[1][2] = {{there[1], back[0]}};
  pid_t between = relay(pairs, 2, piece), answers = relay(answer, 1, piece);
  unsigned char message[64] = {1};
  double *times = calloc(count, sizeof *times);
  check(!times, "calloc");
  for (int i = 0; i < count; i++) {
    double start = now();
    fill(there[0], message, piece, 1, i, 1);
    await(&back[1]->in, i + 1);
    memcpy(message, back[1]->pieces + i % RING_PIECES * piece, piece);
    __atomic_store_n(&back[1]->out, i + 1, __ATOMIC_RELEASE);
    times[i] = (now() - start) / 2 * 1e6;
  }
  kill(between, SIGKILL);
  kill(answers, SIGKILL);
  while (wait(NULL) > 0);
  qsort(times, count, sizeof *times, by_value);
  printf("microseconds p50: %.2f\n", times[count / 2]);
}

// The size of the messages that are copied.
static size_t size_of(const char *text) {
  long bytes = atol(text);
  check(bytes < 1 || bytes > COPY_MAX, "BYTES");
  return bytes;
}

static void pass(int from, int to) {
  uint64_t token;
  check(from >= 0 && read(from, &token, sizeof token) != sizeof token, "read");
  token = 1;
  check(to >= 0 && write(to, &token, sizeof token) != sizeof token, "write");
}

static void wake(int count) {
  int there = eventfd(0, 0), back = eventfd(0, 0);
  double *times = calloc(count, sizeof *times);
  check(there < 0 || back < 0 || !times, "eventfd");
  pid_t child = fork();
  if (!child) {
    for (;;) pass(there, back);
  }
  for (int i = 0; i < count; i++) {
    double start = now();
    pass(-1, there);
    pass(back, -1);
    times[i] = (now() - start) / 2 * 1e6;
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  qsort(times, count, sizeof *times, by_value);
  printf("microseconds p50: %.2f\n", times[count / 2]);
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "sink")) sink();
  else if (argc == 2 && !strcmp(argv[1], "pong")) pong();
  else if (argc == 5 && !strcmp(argv[1], "source")) source(argv[2], atoi(argv[3]), atof(argv[4]));
  else if (argc == 5 && !strcmp(argv[1], "ping")) ping(argv[2], atoi(argv[3]), atoi(argv[4]));
  else if (argc == 3 && !strcmp(argv[1], "copy")) copy(size_of(argv[2]));
  else if (argc == 3 && !strcmp(argv[1], "memcpy")) between_mappings(size_of(argv[2]));
  else if (argc == 3 && !strcmp(argv[1], "ring")) through_rings(size_of(argv[2]), 0);
  else if (argc == 3 && !strcmp(argv[1], "relay")) through_rings(size_of(argv[2]), 1);
  else if (argc == 3 && !strcmp(argv[1], "relay-ping")) relay_ping(atoi(argv[2]));
  else if (argc == 3 && !strcmp(argv[1], "wake")) wake(atoi(argv[2]));
  else return 2;
  return 0;
}
