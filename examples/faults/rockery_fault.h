// Rules of faults in a running program, from C and C++: what `rockery fault` does, for tests that decide
// while they run. docs/faults.md lists the rules. The program runs by `rockery run --fault none -- PROGRAM`.
//
//   int rule = rockery_fault_add(0, "post_send: fail ENOMEM times 3");
//   if (rule < 0) errx(1, "%s", rockery_fault_reason());
//   ...
//   rockery_fault_remove(0, rule);
//
// A process is named by its ID, and 0 is the caller. Functions return -1 with `errno` on an error, which
// rockery_fault_reason() explains: ENOENT where the process was started without --fault, EINVAL for a rule
// that is refused. Nothing is linked: the functions are static, and need Linux and gcc or clang, as C99 or
// C++11.
#ifndef ROCKERY_FAULT_H
#define ROCKERY_FAULT_H

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

// The longest answer, and the longest rule with the word before it.
#define ROCKERY_FAULT_BYTES 4096

// Why the last call of this thread failed.
static inline char *rockery_fault_reason(void) {
#ifdef __cplusplus
  static thread_local char reason[ROCKERY_FAULT_BYTES];
#else
  static __thread char reason[ROCKERY_FAULT_BYTES];
#endif
  return reason;
}

// Called with each line of an answer; what it returns other than 0 is the result, and ends the answer.
typedef int (*rockery_fault_line)(const char *line, void *argument);

static inline int rockery_fault_failed(int error, const char *reason) {
  snprintf(rockery_fault_reason(), ROCKERY_FAULT_BYTES, "%s", reason);
  errno = error;
  return -1;
}

// Asks one of the two libraries of a process. Returns 0, -1, or what `line` returned.
static inline int rockery_fault_ask(pid_t pid, int library, const char *request, rockery_fault_line line,
                                    void *argument) {
  struct sockaddr_un address;
  struct timeval timeout = {5, 0};
  char answer[ROCKERY_FAULT_BYTES + 1];
  int result = 0, length, connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return rockery_fault_failed(errno, strerror(errno));
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  // An abstract name: it begins with a zero, and its length counts.
  length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "rockery-faults-%ld-%d",
                    (long)(pid ? pid : getpid()), library);
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  if (connect(connection, (struct sockaddr *)&address,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) ||
      send(connection, request, strlen(request), MSG_NOSIGNAL) < 0) {
    int error = errno;
    close(connection);
    if (error == ECONNREFUSED)
      return rockery_fault_failed(ENOENT, "the process has no rules: start it by `rockery run --fault none`");
    return rockery_fault_failed(error, strerror(error));
  }
  while (!result) {
    ssize_t received = recv(connection, answer, ROCKERY_FAULT_BYTES, 0);
    if (received < 0) result = rockery_fault_failed(errno, strerror(errno));
    if (received <= 0) break;
    answer[received] = '\0';
    if (!strncmp(answer, "refused ", 8)) result = rockery_fault_failed(EINVAL, answer + 8);
    else if (line) result = line(answer, argument);
  }
  close(connection);
  return result;
}

// Asks both libraries of a process, libibverbs and librdmacm, of which a program may have one. The result is
// that of the last one that answered.
static inline int rockery_fault_ask_all(pid_t pid, const char *request, rockery_fault_line line,
                                        void *argument) {
  int library, result = -1;
  for (library = 0; library < 2; library++) {
    int answer = rockery_fault_ask(pid, library, request, line, argument);
    if (answer >= 0) result = answer;
    else if (errno != ENOENT) return -1;
  }
  return result;
}

static inline int rockery_fault_number(const char *line, void *unused) {
  (void)unused;
  return strncmp(line, "added ", 6) ? 0 : atoi(line + 6);
}

static inline int rockery_fault_change(pid_t pid, const char *verb, const char *rest) {
  char request[ROCKERY_FAULT_BYTES];
  int length = snprintf(request, sizeof request, "%s%s%s", verb, *rest ? " " : "", rest);
  if (length < 0 || (size_t)length >= sizeof request)
    return rockery_fault_failed(EMSGSIZE, "the rule is longer than 4 KiB");
  return rockery_fault_ask_all(pid, request, rockery_fault_number, NULL);
}

// Adds a rule, such as "post_send: fail ENOMEM times 3". Returns its number, by which it is removed.
static inline int rockery_fault_add(pid_t pid, const char *rule) {
  return rockery_fault_change(pid, "add", rule);
}

// Removes a rule. A call that it blocks goes on.
static inline int rockery_fault_remove(pid_t pid, int rule) {
  char number[16];
  snprintf(number, sizeof number, "%d", rule);
  return rockery_fault_change(pid, "remove", number);
}

// Removes all rules.
static inline int rockery_fault_clear(pid_t pid) { return rockery_fault_change(pid, "clear", ""); }

struct rockery_fault_counted {
  int rule;
  unsigned long long faults;
};

static inline int rockery_fault_count_line(const char *line, void *argument) {
  struct rockery_fault_counted *counted = (struct rockery_fault_counted *)argument;
  int number;
  unsigned long long matched, faults;
  if (sscanf(line, "rule %d %llu %llu", &number, &matched, &faults) == 3 && number == counted->rule)
    counted->faults += faults;
  return 0;
}

// How many faults a rule has caused so far; 0 also where there is no such rule. -1 on an error.
static inline long long rockery_fault_count(pid_t pid, int rule) {
  struct rockery_fault_counted counted = {rule, 0};
  if (rockery_fault_ask_all(pid, "list", rockery_fault_count_line, &counted) < 0) return -1;
  return (long long)counted.faults;
}

#endif
