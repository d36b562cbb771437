// peer_killed serve ADDRESS | peer_killed close ADDRESS: closes a stream whose peer was killed before it
// acknowledged the last bytes. The client stops the server, sends, kills it, closes the socket, and prints
// how many queue pairs of its device have used up their retries by then.
#include "connections.h"
#include <fcntl.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int serve(const char *text) {
  struct sockaddr_in address = address_of(text);
  int listener = rsocket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(listener >= 0 && rbind(listener, (struct sockaddr *)&address, sizeof address) == 0);
  REQUIRE(rlisten(listener, 1) == 0);
  int stream = raccept(listener, NULL, NULL);
  pid_t pid = getpid();
  REQUIRE(stream >= 0 && rsend(stream, &pid, sizeof pid, 0) == sizeof pid);
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
  while (rrecv(stream, bytes, sizeof bytes, 0) > 0)
    ;
  long before = exceeded();
  REQUIRE(rclose(stream) == 0);
  printf("exceeded before %ld after %ld\n", before, exceeded());
  return 0;
}
