// reservation_ioctl DEVICE ACTION KEY VALUE: one of the kernel's ioctls for persistent reservations. Prints
// its result: 0, the error number as a negative number, or the status that the kernel derives from the NVMe
// status. VALUE is the new key of register, and the type of the reservation for the other actions.
#include <errno.h>
#include <fcntl.h>
#include <linux/pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static int call(int device, const char *action, unsigned long key, unsigned long value) {
  struct pr_registration registration = {.old_key = key, .new_key = value};
  struct pr_reservation reservation = {.key = key, .type = value};
  struct pr_preempt preempt = {.old_key = key, .new_key = key, .type = value};
  struct pr_clear clear = {.key = key};
  if (!strcmp(action, "register")) return ioctl(device, IOC_PR_REGISTER, &registration);
  if (!strcmp(action, "reserve")) return ioctl(device, IOC_PR_RESERVE, &reservation);
  if (!strcmp(action, "release")) return ioctl(device, IOC_PR_RELEASE, &reservation);
  if (!strcmp(action, "preempt")) return ioctl(device, IOC_PR_PREEMPT, &preempt);
  if (!strcmp(action, "preempt-abort")) return ioctl(device, IOC_PR_PREEMPT_ABORT, &preempt);
  if (!strcmp(action, "clear")) return ioctl(device, IOC_PR_CLEAR, &clear);
  fprintf(stderr, "%s: no such action\n", action);
  exit(2);
}

int main(int count, char **words) {
  if (count != 5) {
    fprintf(stderr, "usage: %s DEVICE ACTION KEY VALUE\n", words[0]);
    return 2;
  }
  int device = open(words[1], O_RDWR);
  if (device < 0) {
    perror(words[1]);
    return 2;
  }
  int result = call(device, words[2], strtoul(words[3], NULL, 0), strtoul(words[4], NULL, 0));
  printf("%d\n", result < 0 ? -errno : result);
  return 0;
}
