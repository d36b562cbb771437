// serve ADDRESS PORT FILE: an HTTP server for one file and one client after the other, with plain sockets.
// What makes them something else is preloaded.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUIRE(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static char *contents(const char *path, long *length) {
  FILE *file = fopen(path, "rb");
  REQUIRE(file && fseek(file, 0, SEEK_END) == 0 && (*length = ftell(file)) >= 0);
  rewind(file);
  char *bytes = malloc(*length + 1);
  REQUIRE(bytes && fread(bytes, 1, *length, file) == (size_t)*length);
  fclose(file);
  return bytes;
}

static void answer(int client, const char *bytes, long length) {
  char request[4096] = "", head[200];
  size_t got = 0;
  while (!strstr(request, "\r\n\r\n")) {
    ssize_t now = recv(client, request + got, sizeof request - 1 - got, 0);
    if (now <= 0) return;
    got += now;
    request[got] = 0;
  }
  const char *form = "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\nConnection: close\r\n\r\n";
  int size = snprintf(head, sizeof head, form, length);
  REQUIRE(send(client, head, size, 0) == size);
  for (long sent = 0; sent < length;) {
    ssize_t now = send(client, bytes + sent, length - sent, 0);
    REQUIRE(now > 0);
    sent += now;
  }
}

int main(int count, char **words) {
  REQUIRE(count == 4);
  long length;
  char *bytes = contents(words[3], &length);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
  REQUIRE(inet_pton(AF_INET, words[1], &address.sin_addr) == 1);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(listener >= 0 && bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
  for (;;) {
    int client = accept(listener, NULL, NULL);
    REQUIRE(client >= 0);
    answer(client, bytes, length);
    close(client);
  }
}
