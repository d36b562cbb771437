// Checks the clocks and waits of a program in a lab against the clock of the machine, which is read by system
// calls of this program's own. Each check runs in a process of its own, all at once.
//
// clocks SLOWDOWN DEVICE-SLOWDOWN: by what the program's clocks are slower, and the device's.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
// How long each wait lasts on the program's clock.
#define WAIT (SECOND / 5)
// A wait that is slowed twice lasts ten times too long; a busy machine may take several times as long.
#define MOST 7

static int64_t slowdown, device_slowdown;

static long machine_call(long number, long a, long b) {
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return answer;
}

static int64_t as_number(struct timespec time) { return time.tv_sec * SECOND + time.tv_nsec; }

static struct timespec as_time(int64_t time) {
    return (struct timespec){.tv_sec = time / SECOND, .tv_nsec = time % SECOND};
}

static int64_t machine(clockid_t clock) {
    struct timespec time;
    machine_call(SYS_clock_gettime, clock, (long)&time);
    return as_number(time);
}

static void machine_sleep(int64_t time) {
    struct timespec wait = as_time(time);
    machine_call(SYS_nanosleep, (long)&wait, 0);
}

static int64_t program(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return as_number(time);
}

static void fail(const char *what, int64_t is, int64_t least, int64_t most) {
    printf("%s: %lld ns, expected %lld to %lld\n", what, (long long)is, (long long)least, (long long)most);
    exit(1);
}

static void expect(int holds, const char *what) {
    if (!holds) {
        printf("%s: errno %d\n", what, errno);
        exit(1);
    }
}

// Each reading is between two of the machine, so the bounds hold however long anything takes.
static void check_rate(const char *what, int64_t (*read_clock)(int), int argument, int64_t factor,
                       int64_t unit) {
    int64_t before = machine(CLOCK_MONOTONIC), first = read_clock(argument);
    int64_t after = machine(CLOCK_MONOTONIC);
    machine_sleep(SECOND / 2);
    int64_t then = machine(CLOCK_MONOTONIC), second = read_clock(argument);
    int64_t least = (then - after) / factor - unit;
    int64_t most = (machine(CLOCK_MONOTONIC) - before) / factor + unit;
    if (second - first < least || second - first > most)
        fail(what, second - first, least, most);
}

static int64_t by_clock(int clock) { return program(clock); }
static int64_t by_system_call(int clock) {
    struct timespec time;
    syscall(SYS_clock_gettime, clock, &time);
    return as_number(time);
}
static int64_t by_timespec_get(int base) {
    struct timespec time;
    timespec_get(&time, base);
    return as_number(time);
}
static int64_t by_gettimeofday(int unused) {
    (void)unused;
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * SECOND + time.tv_usec * 1000;
}
static struct ibv_context *context;
static int64_t by_device(int unused) {
    (void)unused;
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    expect(ibv_query_rt_values_ex(context, &values) == 0, "ibv_query_rt_values_ex");
    return as_number(values.raw_clock);
}

static void readings(void) {
    // Clocks of the machine that are coarse or slewed move unlike the monotonic one.
    const int64_t unit = 10 * 1000 * 1000;
    check_rate("CLOCK_MONOTONIC", by_clock, CLOCK_MONOTONIC, slowdown, 1000);
    check_rate("CLOCK_MONOTONIC_RAW", by_clock, CLOCK_MONOTONIC_RAW, slowdown, unit);
    check_rate("CLOCK_MONOTONIC_COARSE", by_clock, CLOCK_MONOTONIC_COARSE, slowdown, unit);
    check_rate("CLOCK_BOOTTIME", by_clock, CLOCK_BOOTTIME, slowdown, 1000);
    check_rate("CLOCK_REALTIME", by_clock, CLOCK_REALTIME, slowdown, unit);
    check_rate("CLOCK_REALTIME_COARSE", by_clock, CLOCK_REALTIME_COARSE, slowdown, unit);
    check_rate("CLOCK_TAI", by_clock, CLOCK_TAI, slowdown, unit);
    check_rate("gettimeofday", by_gettimeofday, 0, slowdown, unit);
    check_rate("timespec_get", by_timespec_get, TIME_UTC, slowdown, unit);
    check_rate("syscall(SYS_clock_gettime)", by_system_call, CLOCK_MONOTONIC, slowdown, 1000);
    int64_t before = program(CLOCK_REALTIME), seconds = time(NULL), after = program(CLOCK_REALTIME);
    if (seconds < before / SECOND - 1 || seconds > after / SECOND)
        fail("time", seconds * SECOND, before, after);
    before = machine(CLOCK_PROCESS_CPUTIME_ID);
    int64_t used = program(CLOCK_PROCESS_CPUTIME_ID);
    after = machine(CLOCK_PROCESS_CPUTIME_ID);
    if (used < before || used > after)
        fail("CLOCK_PROCESS_CPUTIME_ID", used, before, after);
}

static void device(void) {
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    expect(list && count > 0 && (context = ibv_open_device(list[0])), "a device");
    check_rate("clock of the device", by_device, 0, device_slowdown, 1000);
}

static struct timespec in(clockid_t clock) { return as_time(program(clock) + WAIT); }
static const struct timespec wait_time = {.tv_nsec = WAIT};
#define MILLIS ((int)(WAIT / 1000000))
#define MICROS ((long)(WAIT / 1000))

static void by_nanosleep(void) { expect(nanosleep(&wait_time, NULL) == 0, "nanosleep"); }
static void by_clock_nanosleep(void) {
    expect(clock_nanosleep(CLOCK_MONOTONIC, 0, &wait_time, NULL) == 0, "clock_nanosleep");
}
static void until(clockid_t clock) {
    struct timespec at = in(clock);
    expect(clock_nanosleep(clock, TIMER_ABSTIME, &at, NULL) == 0, "clock_nanosleep");
}
static void until_monotonic(void) { until(CLOCK_MONOTONIC); }
static void until_boot(void) { until(CLOCK_BOOTTIME); }
static void until_wall(void) { until(CLOCK_REALTIME); }
static void by_usleep(void) { expect(usleep(MICROS) == 0, "usleep"); }
static void by_thrd_sleep(void) { expect(thrd_sleep(&wait_time, NULL) == 0, "thrd_sleep"); }
static void by_direct_sleep(void) { expect(syscall(SYS_nanosleep, &wait_time, NULL) == 0, "syscall"); }
static void by_poll(void) { expect(poll(NULL, 0, MILLIS) == 0, "poll"); }
static void by_ppoll(void) { expect(ppoll(NULL, 0, &wait_time, NULL) == 0, "ppoll"); }
static void by_select(void) {
    struct timeval time = {.tv_usec = MICROS};
    expect(select(0, NULL, NULL, NULL, &time) == 0 && time.tv_usec == 0, "select");
}
static void by_pselect(void) { expect(pselect(0, NULL, NULL, NULL, &wait_time, NULL) == 0, "pselect"); }
static void by_epoll_wait(void) {
    struct epoll_event event;
    expect(epoll_wait(epoll_create1(0), &event, 1, MILLIS) == 0, "epoll_wait");
}
static void by_epoll_pwait(void) {
    struct epoll_event event;
    expect(epoll_pwait(epoll_create1(0), &event, 1, MILLIS, NULL) == 0, "epoll_pwait");
}
static void by_epoll_pwait2(void) {
    struct epoll_event event;
    expect(epoll_pwait2(epoll_create1(0), &event, 1, &wait_time, NULL) == 0, "epoll_pwait2");
}
static void by_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    expect(sigtimedwait(&set, NULL, &wait_time) == -1 && errno == EAGAIN, "sigtimedwait");
}
static void by_semtimedop(void) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {.sem_op = -1};
    int answer = semtimedop(set, &take, 1, &wait_time), error = errno;
    semctl(set, 0, IPC_RMID);
    expect(answer == -1 && error == EAGAIN, "semtimedop");
}
static void by_condition(clockid_t clock) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, clock);
    pthread_cond_init(&condition, &attributes);
    pthread_mutex_lock(&mutex);
    struct timespec at = in(clock);
    int answer;
    while ((answer = pthread_cond_timedwait(&condition, &mutex, &at)) == 0)
        ;
    expect(answer == ETIMEDOUT, "pthread_cond_timedwait");
}
static void condition_wall(void) { by_condition(CLOCK_REALTIME); }
static void condition_monotonic(void) { by_condition(CLOCK_MONOTONIC); }
static void condition_clock(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    struct timespec at = in(CLOCK_MONOTONIC);
    int answer;
    while ((answer = pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &at)) == 0)
        ;
    expect(answer == ETIMEDOUT, "pthread_cond_clockwait");
}
static void condition_c11(void) {
    mtx_t mutex;
    cnd_t condition;
    mtx_init(&mutex, mtx_plain);
    cnd_init(&condition);
    mtx_lock(&mutex);
    struct timespec at = in(CLOCK_REALTIME);
    int answer;
    while ((answer = cnd_timedwait(&condition, &mutex, &at)) == thrd_success)
        ;
    expect(answer == thrd_timedout, "cnd_timedwait");
}
static void by_semaphore(void) {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct timespec at = in(CLOCK_REALTIME);
    expect(sem_timedwait(&semaphore, &at) == -1 && errno == ETIMEDOUT, "sem_timedwait");
}
static void by_semaphore_clock(void) {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct timespec at = in(CLOCK_MONOTONIC);
    expect(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &at) == -1 && errno == ETIMEDOUT, "sem_clockwait");
}
static void by_mutex(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    struct timespec at = in(CLOCK_REALTIME);
    expect(pthread_mutex_timedlock(&mutex, &at) == ETIMEDOUT, "pthread_mutex_timedlock");
}
static void by_mutex_clock(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    struct timespec at = in(CLOCK_MONOTONIC);
    expect(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &at) == ETIMEDOUT, "pthread_mutex_clocklock");
}
static void by_mutex_c11(void) {
    mtx_t mutex;
    mtx_init(&mutex, mtx_timed);
    mtx_lock(&mutex);
    struct timespec at = in(CLOCK_REALTIME);
    expect(mtx_timedlock(&mutex, &at) == thrd_timedout, "mtx_timedlock");
}
static void by_lock_for_writers(void) {
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_rwlock_rdlock(&lock);
    struct timespec at = in(CLOCK_REALTIME);
    expect(pthread_rwlock_timedwrlock(&lock, &at) == ETIMEDOUT, "pthread_rwlock_timedwrlock");
}
static void by_lock_for_writers_clock(void) {
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_rwlock_rdlock(&lock);
    struct timespec at = in(CLOCK_MONOTONIC);
    expect(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &at) == ETIMEDOUT, "clockwrlock");
}
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static void *write_and_stay(void *started) {
    pthread_rwlock_wrlock(&written);
    sem_post(started);
    pause();
    return NULL;
}
static void by_lock_for_readers(void) {
    sem_t started;
    sem_init(&started, 0, 0);
    pthread_t writer;
    pthread_create(&writer, NULL, write_and_stay, &started);
    sem_wait(&started);
    struct timespec at = in(CLOCK_REALTIME);
    expect(pthread_rwlock_timedrdlock(&written, &at) == ETIMEDOUT, "pthread_rwlock_timedrdlock");
    at = in(CLOCK_MONOTONIC);
    expect(pthread_rwlock_clockrdlock(&written, CLOCK_MONOTONIC, &at) == ETIMEDOUT, "clockrdlock");
}
static void by_join(void) {
    sem_t started;
    sem_init(&started, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, write_and_stay, &started);
    struct timespec at = in(CLOCK_REALTIME);
    expect(pthread_timedjoin_np(thread, NULL, &at) == ETIMEDOUT, "pthread_timedjoin_np");
}
static volatile sig_atomic_t rang;
static void ring(int signal) { rang = signal; }
static void wait_for_bell(void) {
    sigset_t before, none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, NULL, &before);
    while (!rang)
        sigsuspend(&none);
}
static void prepare_bell(void) {
    sigset_t bell;
    sigemptyset(&bell);
    sigaddset(&bell, SIGALRM);
    sigprocmask(SIG_BLOCK, &bell, NULL);
    signal(SIGALRM, ring);
}
static void by_ualarm(void) {
    prepare_bell();
    ualarm(MICROS, 0);
    wait_for_bell();
}
static void by_setitimer(void) {
    prepare_bell();
    struct itimerval setting = {.it_value.tv_usec = MICROS}, left;
    setitimer(ITIMER_REAL, &setting, NULL);
    getitimer(ITIMER_REAL, &left);
    expect(left.it_value.tv_sec == 0 && left.it_value.tv_usec <= MICROS, "getitimer");
    wait_for_bell();
}
static void by_timer(clockid_t clock, int flags) {
    prepare_bell();
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    expect(timer_create(clock, &event, &timer) == 0, "timer_create");
    struct itimerspec setting = {.it_value = flags ? in(clock) : wait_time}, left;
    expect(timer_settime(timer, flags, &setting, NULL) == 0, "timer_settime");
    expect(timer_gettime(timer, &left) == 0 && as_number(left.it_value) <= WAIT, "timer_gettime");
    wait_for_bell();
    timer_delete(timer);
}
static void timer_relative(void) { by_timer(CLOCK_MONOTONIC, 0); }
static void timer_absolute(void) { by_timer(CLOCK_MONOTONIC, TIMER_ABSTIME); }
static void timer_wall(void) { by_timer(CLOCK_REALTIME, TIMER_ABSTIME); }
static void by_timerfd(clockid_t clock, int flags) {
    int timer = timerfd_create(clock, 0);
    struct itimerspec setting = {.it_value = flags ? in(clock) : wait_time}, left;
    expect(timerfd_settime(timer, flags, &setting, NULL) == 0, "timerfd_settime");
    expect(timerfd_gettime(timer, &left) == 0 && as_number(left.it_value) <= WAIT, "timerfd_gettime");
    uint64_t ticks;
    expect(read(timer, &ticks, sizeof ticks) == sizeof ticks && ticks == 1, "ticks");
}
static void timerfd_relative(void) { by_timerfd(CLOCK_MONOTONIC, 0); }
static void timerfd_absolute(void) { by_timerfd(CLOCK_MONOTONIC, TFD_TIMER_ABSTIME); }
static void timerfd_wall(void) { by_timerfd(CLOCK_REALTIME, TFD_TIMER_ABSTIME); }
static void by_receive(void) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    struct timeval limit = {.tv_usec = MICROS}, told;
    socklen_t length = sizeof told;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    getsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &told, &length);
    expect(told.tv_sec == 0 && told.tv_usec >= MICROS && told.tv_usec < 2 * MICROS, "getsockopt");
    char byte;
    expect(recv(pair[0], &byte, 1, 0) == -1 && errno == EAGAIN, "recv");
}
static uint32_t word;
static void by_futex(void) {
    expect(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &wait_time) == -1 && errno == ETIMEDOUT, "futex");
}
static void by_futex_until(void) {
    struct timespec at = in(CLOCK_MONOTONIC);
    long answer = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL, -1);
    expect(answer == -1 && errno == ETIMEDOUT, "futex");
}

// Whole seconds are the least of these.
static void by_sleep(void) { expect(sleep(1) == 0, "sleep"); }
static void by_alarm(void) {
    prepare_bell();
    alarm(1);
    expect(alarm(1) == 1, "alarm");
    wait_for_bell();
}

// The kernel says when a datagram arrived, by the machine's clock.
static void timestamp(void) {
    int receiver = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    bind(receiver, (struct sockaddr *)&address, sizeof address);
    getsockname(receiver, (struct sockaddr *)&address, &length);
    setsockopt(receiver, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
    // By now the two clocks are further apart than the bounds below.
    machine_sleep(SECOND);
    int64_t before = program(CLOCK_REALTIME);
    expect(sendto(receiver, "", 1, 0, (struct sockaddr *)&address, sizeof address) == 1, "sendto");
    char byte, control[256];
    struct iovec room = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    expect(recvmsg(receiver, &message, 0) == 1, "recvmsg");
    int64_t after = program(CLOCK_REALTIME);
    struct timeval time;
    memcpy(&time, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof time);
    int64_t arrived = time.tv_sec * SECOND + time.tv_usec * 1000;
    // The wall clock of the machine may be slewed meanwhile, by which the two differ.
    const int64_t unit = 50 * 1000 * 1000;
    if (arrived < before - unit || arrived > after + unit)
        fail("timestamp", arrived, before, after);
}

// What is left of a sleep that a signal ends is on the program's clock too.
static void interrupted(void) {
    signal(SIGUSR1, ring);
    pid_t own = getpid();
    if (fork() == 0) {
        for (;;) {
            machine_sleep(SECOND / 10);
            if (kill(own, SIGUSR1) != 0)
                _exit(0);
        }
    }
    struct timespec hour = {.tv_sec = 3600}, left = {0};
    expect(nanosleep(&hour, &left) == -1 && errno == EINTR, "nanosleep");
    expect(left.tv_sec > 3000 && left.tv_sec <= 3600, "what is left");
}

static const struct {
    const char *name;
    void (*check)(void);
    int64_t wait;
} checks[] = {
    {"readings", readings, 0},
    {"device", device, 0},
    {"timestamp", timestamp, 0},
    {"interrupted", interrupted, 0},
    {"nanosleep", by_nanosleep, WAIT},
    {"clock_nanosleep", by_clock_nanosleep, WAIT},
    {"clock_nanosleep until CLOCK_MONOTONIC", until_monotonic, WAIT},
    {"clock_nanosleep until CLOCK_BOOTTIME", until_boot, WAIT},
    {"clock_nanosleep until CLOCK_REALTIME", until_wall, WAIT},
    {"usleep", by_usleep, WAIT},
    {"sleep", by_sleep, SECOND},
    {"thrd_sleep", by_thrd_sleep, WAIT},
    {"syscall(SYS_nanosleep)", by_direct_sleep, WAIT},
    {"poll", by_poll, WAIT},
    {"ppoll", by_ppoll, WAIT},
    {"select", by_select, WAIT},
    {"pselect", by_pselect, WAIT},
    {"epoll_wait", by_epoll_wait, WAIT},
    {"epoll_pwait", by_epoll_pwait, WAIT},
    {"epoll_pwait2", by_epoll_pwait2, WAIT},
    {"sigtimedwait", by_sigtimedwait, WAIT},
    {"semtimedop", by_semtimedop, WAIT},
    {"pthread_cond_timedwait", condition_wall, WAIT},
    {"pthread_cond_timedwait of CLOCK_MONOTONIC", condition_monotonic, WAIT},
    {"pthread_cond_clockwait", condition_clock, WAIT},
    {"cnd_timedwait", condition_c11, WAIT},
    {"sem_timedwait", by_semaphore, WAIT},
    {"sem_clockwait", by_semaphore_clock, WAIT},
    {"pthread_mutex_timedlock", by_mutex, WAIT},
    {"pthread_mutex_clocklock", by_mutex_clock, WAIT},
    {"mtx_timedlock", by_mutex_c11, WAIT},
    {"pthread_rwlock_timedwrlock", by_lock_for_writers, WAIT},
    {"pthread_rwlock_clockwrlock", by_lock_for_writers_clock, WAIT},
    {"pthread_rwlock_timedrdlock, clockrdlock", by_lock_for_readers, 2 * WAIT},
    {"pthread_timedjoin_np", by_join, WAIT},
    {"alarm", by_alarm, SECOND},
    {"ualarm", by_ualarm, WAIT},
    {"setitimer", by_setitimer, WAIT},
    {"timer_settime", timer_relative, WAIT},
    {"timer_settime until CLOCK_MONOTONIC", timer_absolute, WAIT},
    {"timer_settime until CLOCK_REALTIME", timer_wall, WAIT},
    {"timerfd_settime", timerfd_relative, WAIT},
    {"timerfd_settime until CLOCK_MONOTONIC", timerfd_absolute, WAIT},
    {"timerfd_settime until CLOCK_REALTIME", timerfd_wall, WAIT},
    {"SO_RCVTIMEO", by_receive, WAIT},
    {"futex", by_futex, WAIT},
    {"futex until CLOCK_MONOTONIC", by_futex_until, WAIT},
};
#define COUNT ((int)(sizeof checks / sizeof *checks))

static void run(int number) {
    int64_t wait = checks[number].wait, start = machine(CLOCK_MONOTONIC);
    checks[number].check();
    int64_t took = machine(CLOCK_MONOTONIC) - start;
    // A deadline is rounded to what the caller asks in: up to a microsecond of the program's clock.
    int64_t least = (wait - 1000) * slowdown, most = MOST * slowdown * wait;
    if (wait && slowdown > 1 && (took < least || took > most))
        fail(checks[number].name, took, least, most);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    slowdown = atoll(argv[1]);
    device_slowdown = atoll(argv[2]);
    pid_t children[COUNT];
    for (int number = 0; number < COUNT; number++) {
        children[number] = fork();
        if (children[number] == 0) {
            run(number);
            fflush(stdout);
            _exit(0);
        }
    }
    int passed = 0;
    for (int number = 0; number < COUNT; number++) {
        int status;
        waitpid(children[number], &status, 0);
        if (status == 0)
            passed++;
        else
            printf("%s failed\n", checks[number].name);
    }
    printf("%d of %d checks passed\n", passed, COUNT);
    return passed == COUNT ? 0 : 1;
}
