// peer_killed serve ADDRESS | peer_killed close ADDRESS | peer_killed shutdown ADDRESS: closes a stream whose
// peer was killed before it acknowledged the last bytes. The client stops the server, sends and kills it.
// `close` reads until the end, closes the socket, and prints how many queue pairs of its device have used up
// their retries by then. `shutdown` shuts down receiving as soon as the event that the peer is gone can be
// taken, and prints the result: this sends nothing, and waits for the acknowledgement of what was sent.
#include "connections.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

// Waits until an event of the connection manager can be taken: the descriptor of a stream is that of its
// events.
static void await_event(int stream) {
  struct pollfd event = {.fd = stream, .events = POLLIN};
  REQUIRE(poll(&event, 1, -1) == 1);
}

static int serve(const char *text) {
  struct sockaddr_in address = address_of(text);
  int listener = rsocket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(listener >= 0 && rbind(listener, (struct sockaddr *)&address, sizeof address) == 0);
  REQUIRE(rlisten(listener, 1) == 0);
  int stream = raccept(listener, NULL, NULL);
  REQUIRE(stream >= 0);
  // The peer of a connection that is not established yet is rejected at the end, and not disconnected. The
  // connection manager has noted that it is established when the listener is closed.
  await_event(stream);
  REQUIRE(rclose(listener) == 0);
  pid_t pid = getpid();
  REQUIRE(rsend(stream, &pid, sizeof pid, 0) == sizeof pid);
  for (;;)
    pause();
}

static char state_of(pid_t pid) {
  char path[64], state = '?';
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  REQUIRE(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
  fclose(file);
  return state;
}

// The view of `rockery run` has this file.
static long exceeded(void) {
  char text[32] = {0};
  int file = open("/sys/class/infiniband/rk_eth0/ports/1/hw_counters/retry_exceeded_err", O_RDONLY);
  REQUIRE(file >= 0 && read(file, text, sizeof text - 1) > 0);
  close(file);
  return atol(text);
}

int main(int argc, char **argv) {
  REQUIRE(argc == 3);
  if (strcmp(argv[1], "serve") == 0)
    return serve(argv[2]);
  struct sockaddr_in address = address_of(argv[2]);
  int stream = rsocket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(stream >= 0 && rconnect(stream, (struct sockaddr *)&address, sizeof address) == 0);
  pid_t pid;
  char bytes[64] = {0};
  REQUIRE(rrecv(stream, &pid, sizeof pid, MSG_WAITALL) == sizeof pid);
  REQUIRE(kill(pid, SIGSTOP) == 0);
  while (state_of(pid) != 'T')
    usleep(1000);
  REQUIRE(rsend(stream, bytes, sizeof bytes, 0) == sizeof bytes);
  REQUIRE(kill(pid, SIGKILL) == 0);
  if (strcmp(argv[1], "shutdown") == 0) {
    await_event(stream);
    printf("%s\n", rshutdown(stream, SHUT_RD) == 0 ? "shut down" : strerror(errno));
    return rclose(stream);
  }
  while (rrecv(stream, bytes, sizeof bytes, 0) > 0)
    ;
  long before = exceeded();
  REQUIRE(rclose(stream) == 0);
  printf("exceeded before %ld after %ld\n", before, exceeded());
  return 0;
}
