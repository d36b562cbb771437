// meeting.h: how the two ends of a probe find each other over TCP, and how they fail.
#pragma once
#define _GNU_SOURCE   // for the name of the program; has to come before any header of the system

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

__attribute__((noreturn, format(printf, 1, 2)))
static inline void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s: ", program_invocation_short_name);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(2);
}

// Verbs return an errno, or -1 with errno set.
static inline void done(int status, const char *what) {
  if (status) fail("%s: %s", what, strerror(status > 0 ? status : errno));
}

static inline void *have(void *thing, const char *what) {
  if (!thing) fail("%s: %s", what, strerror(errno));
  return thing;
}

static inline void sleep_ms(unsigned ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static inline long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// A TCP connection to the other side: to its host, or, without a host, the first that connects to this one.
static inline int meet(const char *host, const char *port) {
  struct addrinfo *info, want = {.ai_socktype = SOCK_STREAM, .ai_family = host ? AF_UNSPEC : AF_INET,
                                 .ai_flags = AI_PASSIVE};
  if (getaddrinfo(host, port, &want, &info)) fail("%s is no address", host);
  int connection = socket(info->ai_family, SOCK_STREAM, 0), yes = 1;
  if (host) {
    if (connect(connection, info->ai_addr, info->ai_addrlen)) fail("connect: %s", strerror(errno));
    freeaddrinfo(info);
    return connection;
  }
  setsockopt(connection, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(connection, info->ai_addr, info->ai_addrlen) || listen(connection, 1))
    fail("listen: %s", strerror(errno));
  freeaddrinfo(info);
  int accepted = accept(connection, NULL, NULL);
  close(connection);
  return accepted;
}

// Both sides send as many bytes as they receive; used with one byte, it makes them wait for each other.
static inline void exchange(int peer, const void *out, void *in, size_t bytes) {
  const ssize_t all = bytes;
  if (send(peer, out, bytes, MSG_NOSIGNAL) != all || recv(peer, in, bytes, MSG_WAITALL) != all)
    fail("the other side is gone");
}
