// cancelled_calls: threads that are cancelled (pthread_cancel(3)) in functions of the C library that
// preloaded libraries replace and pass on. Prints each name, and "right" at the end if all ended as
// pthreads(7) says.
#include "meeting.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>

static int ends[2];
static char byte;
static struct timespec soon = {.tv_nsec = 1000};

static void in_read(void) { (void)!read(ends[0], &byte, 1); }
static void in_write(void) { (void)!write(ends[0], &byte, 1); }
static void in_send(void) { send(ends[0], &byte, 1, 0); }
static void in_sendto(void) { sendto(ends[0], &byte, 1, 0, NULL, 0); }
static void in_recv(void) { recv(ends[0], &byte, 1, 0); }
static void in_recvfrom(void) { recvfrom(ends[0], &byte, 1, 0, NULL, NULL); }

static void in_sendmsg(void) {
  struct iovec piece = {&byte, 1};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  sendmsg(ends[0], &message, 0);
}

static void in_recvmsg(void) {
  struct iovec piece = {&byte, 1};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  recvmsg(ends[0], &message, 0);
}

static void in_open(void) { open("/dev/null", O_RDONLY); }
static void in_openat(void) { openat(AT_FDCWD, "/sys/class/infiniband", O_RDONLY); }
static void in_poll(void) { poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, 1); }
static void in_ppoll(void) { ppoll(&(struct pollfd){ends[0], POLLIN, 0}, 1, &soon, NULL); }
static void in_select(void) { select(0, NULL, NULL, NULL, &(struct timeval){.tv_usec = 1}); }
static void in_pselect(void) { pselect(0, NULL, NULL, NULL, &soon, NULL); }

static void in_epoll_wait(void) {
  struct epoll_event event;
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_wait(epoll, &event, 1, 1);
}

static void in_nanosleep(void) { nanosleep(&soon, NULL); }
static void in_clock_nanosleep(void) { clock_nanosleep(CLOCK_MONOTONIC, 0, &soon, NULL); }
static void in_usleep(void) { usleep(1); }

static void in_sem_timedwait(void) {
  sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  sem_timedwait(&semaphore, &soon);
}

static void in_pthread_cond_timedwait(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  pthread_cond_timedwait(&condition, &mutex, &soon);
}

struct call {
  const char *name;
  void (*make)(void);
};
#define CALL(name) {#name, in_##name}
static const struct call calls[] = {
    CALL(read), CALL(write), CALL(send), CALL(sendto), CALL(sendmsg), CALL(recv), CALL(recvfrom),
    CALL(recvmsg), CALL(open), CALL(openat), CALL(poll), CALL(ppoll), CALL(select), CALL(pselect),
    CALL(epoll_wait), CALL(nanosleep), CALL(clock_nanosleep), CALL(usleep), CALL(sem_timedwait),
    CALL(pthread_cond_timedwait),
};

static volatile int cleaned, went_on;
static void set(void *flag) { *(volatile int *)flag = 1; }

// The cancellation is pending when the call is made, so that the call ends the thread and does not wait.
static void *caller(void *given) {
  const struct call *call = given;
  pthread_cleanup_push(set, (void *)&cleaned);
  pthread_cancel(pthread_self());
  call->make();
  went_on = 1;
  pthread_cleanup_pop(0);
  return NULL;
}

int main(void) {
  done(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
  int wrong = 0;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    pthread_t thread;
    void *result = NULL;
    cleaned = went_on = 0;
    // Before the call: after a crash the last line says where it was.
    printf("%s\n", calls[i].name);
    fflush(stdout);
    done(pthread_create(&thread, NULL, caller, (void *)&calls[i]), "pthread_create");
    done(pthread_join(thread, &result), "pthread_join");
    if (result != PTHREAD_CANCELED || !cleaned || went_on) {
      printf("%s: WRONG\n", calls[i].name);
      wrong = 1;
    }
  }
  if (!wrong) puts("right");
  return wrong;
}
