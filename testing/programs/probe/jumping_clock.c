// jumping_clock: for LD_PRELOAD. The wall clock jumps with each reading, by up to sixty years forwards or
// backwards, as after a wrong answer of a time server; clocks that count from the start do not.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MOST (60l * 365 * 86400)

static long jump(void) {
  static atomic_ulong readings;
  unsigned long mixed = (atomic_fetch_add(&readings, 1) + 1) * 0x9e3779b97f4a7c15ul;
  return (long)((mixed >> 16) % (2 * MOST)) - MOST;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, clock, time);
  if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
    time->tv_sec += jump();
  return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  int result = syscall(SYS_gettimeofday, time, zone);
  if (!result)
    time->tv_sec += jump();
  return result;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out)
    *out = now.tv_sec;
  return now.tv_sec;
}
