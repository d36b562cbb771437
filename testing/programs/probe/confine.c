// confine: starts a program that the kernel refuses some system calls, as sandboxes and containers do.
//
//   confine memory PROGRAM …     nothing that reaches the memory of another process
//   confine shared PROGRAM …     no anonymous files, so no memory to share
//   confine namespaces PROGRAM … neither namespaces nor mounts
//   confine netlink PROGRAM …    no netlink sockets
//
// What is refused fails with EPERM.

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "which architecture is this?"
#endif

#define CALLS_MAX 8
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static const int memory[] = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_preadv, SYS_pwritev,
                             SYS_preadv2, SYS_pwritev2, SYS_ptrace};
static const int shared[] = {SYS_memfd_create};
static const int namespaces[] = {SYS_unshare, SYS_setns, SYS_mount};

static void confine_by(struct sock_filter *filter, unsigned length) {
  struct sock_fprog program = {length, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
    fprintf(stderr, "confine: %s\n", strerror(errno));
    _exit(2);
  }
}

static void confine_netlink(void) {
  struct sock_filter filter[] = {
    LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0), ALLOW,
    LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0), ALLOW,
    LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0), ALLOW, REFUSE};
  confine_by(filter, sizeof filter / sizeof *filter);
}

static void confine(const int *calls, unsigned count) {
  struct sock_filter filter[6 + CALLS_MAX] = {
    LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0), ALLOW, LOAD(nr)};
  unsigned length = 4;
  for (unsigned i = 0; i < count; i++, length++)
    filter[length] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], count - i, 0);
  filter[length++] = (struct sock_filter)ALLOW;
  filter[length++] = (struct sock_filter)REFUSE;
  confine_by(filter, length);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  if (!strcmp(argv[1], "memory")) confine(memory, sizeof memory / sizeof *memory);
  else if (!strcmp(argv[1], "shared")) confine(shared, sizeof shared / sizeof *shared);
  else if (!strcmp(argv[1], "namespaces")) confine(namespaces, sizeof namespaces / sizeof *namespaces);
  else if (!strcmp(argv[1], "netlink")) confine_netlink();
  else return 2;
  execvp(argv[2], argv + 2);
  fprintf(stderr, "confine: %s: %s\n", argv[2], strerror(errno));
  return 2;
}
