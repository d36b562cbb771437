// signals [open]: what becomes of a program's SIGSEGV and SIGBUS, case by case, in processes of their own.
// With `open` each has opened a device before, after the program has installed its handler. The library's own
// handlers must make no difference, so both print the same lines.
#include "device.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { STACK = 64 << 10 };

static int opens;
static char *nowhere, *stack;
static sigjmp_buf back;
static volatile int calls;

static void access_nothing(void) { *(volatile char *)nowhere = 1; }

static void answer(int code) {
  static char line[] = "handler  \n";
  line[8] = '0' + code;
  if (write(1, line, sizeof line - 1) < 0) _exit(9);
}

static void leave(int signal) { (void)signal; answer(0); siglongjmp(back, 1); }
static void exit_quietly(int signal) { (void)signal; answer(1); _exit(0); }
static void count(int signal) {
  (void)signal;
  if (calls++ > 4) _exit(4);
  answer(2);
}

static void look(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  answer(info->si_addr == nowhere && info->si_code == SEGV_ACCERR ? 3 : 4);
  siglongjmp(back, 1);
}

static void where(int signal) {
  char here;
  (void)signal;
  answer(&here >= stack && &here < stack + STACK ? 5 : 6);
  siglongjmp(back, 1);
}

static void blocked(int signal) {
  sigset_t mask;
  sigprocmask(SIG_BLOCK, NULL, &mask);
  answer(sigismember(&mask, signal) * 2 + sigismember(&mask, SIGUSR1));
  siglongjmp(back, 1);
}

static void install(int signal, void *handler, int flags) {
  struct sigaction action = {.sa_flags = flags};
  if (flags & SA_SIGINFO) action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
  else action.sa_handler = (void (*)(int))handler;
  sigaddset(&action.sa_mask, SIGUSR1);
  done(sigaction(signal, &action, NULL), "sigaction");
  stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
  done(sigaltstack(&alternate, NULL), "sigaltstack");
  if (opens) {
    struct ibv_context *context = open_device("rk_lo");
    have(ibv_alloc_pd(context), "ibv_alloc_pd");
  }
}

// Faults once, and again after the handler has left by a jump.
static void fault_twice(void) {
  for (volatile int i = 0; i < 2; i++)
    if (!sigsetjmp(back, 1)) access_nothing();
}

static void nothing(void) { install(SIGSEGV, SIG_DFL, 0), access_nothing(); }
static void ignored_fault(void) { install(SIGSEGV, SIG_IGN, 0), access_nothing(); }
static void sent(void) { install(SIGSEGV, SIG_DFL, 0), raise(SIGSEGV); }
static void sent_bus(void) { install(SIGBUS, SIG_DFL, 0), kill(getpid(), SIGBUS); }
static void sent_ignored(void) { install(SIGBUS, SIG_IGN, 0), raise(SIGBUS), raise(SIGBUS); }
static void sent_counted(void) {
  install(SIGSEGV, count, 0), raise(SIGSEGV), raise(SIGSEGV);
  if (calls != 2) _exit(3);
}
static void once(void) { install(SIGSEGV, count, SA_RESETHAND), access_nothing(); }
static void sent_once(void) { install(SIGBUS, count, SA_RESETHAND), raise(SIGBUS), raise(SIGBUS); }
static void quits(void) { install(SIGSEGV, exit_quietly, 0), access_nothing(); }
static void jumps(void) { install(SIGSEGV, leave, 0), fault_twice(); }
static void nested(void) { install(SIGSEGV, leave, SA_NODEFER), fault_twice(); }
static void informed(void) { install(SIGSEGV, look, SA_SIGINFO), fault_twice(); }
static void on_its_stack(void) { install(SIGSEGV, where, 0), fault_twice(); }
static void on_the_alternate_stack(void) { install(SIGSEGV, where, SA_ONSTACK), fault_twice(); }
static void mask(void) { install(SIGSEGV, blocked, 0), fault_twice(); }
static void mask_without_itself(void) { install(SIGSEGV, blocked, SA_NODEFER), fault_twice(); }

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    {"a fault by default", nothing}, {"an ignored fault", ignored_fault}, {"sent by default", sent},
    {"SIGBUS sent by default", sent_bus}, {"sent and ignored", sent_ignored},
    {"sent twice", sent_counted}, {"a handler for one fault", once},
    {"a handler for one signal", sent_once}, {"a handler that exits", quits},
    {"a handler that jumps", jumps}, {"a handler that may be interrupted", nested},
    {"the address of a fault", informed}, {"a handler on the stack", on_its_stack},
    {"a handler on the alternate stack", on_the_alternate_stack}, {"what a handler blocks", mask},
    {"what a handler with SA_NODEFER blocks", mask_without_itself}};

int main(int argc, char **argv) {
  opens = argc > 1 && !strcmp(argv[1], "open");
  nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack = have(malloc(STACK), "malloc");
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    printf("%s:\n", cases[i].name);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      alarm(20);
      cases[i].run();
      _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child) fail("waitpid");
    printf("  %s %d\n", WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  return 0;
}
