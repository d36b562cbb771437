// memory_kinds: every kind of memory that a program may register, as target of every operation between two
// queue pairs of one program; each byte is checked, and those beside it.
//
//   memory_kinds [-d DEVICE] [-g GID_INDEX] [-2] [-H]
//
// With -2 each queue pair is of a device of its own, as if they were of two programs; with -H the system has
// huge pages to give. Prints a line for each kind.

#include "meeting.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>

#define BYTES 65536u
#define HUGE_BYTES (4u << 20)
#define RIGHTS \
  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define TIMEOUT_MS 20000

// The requester, and the responder, which has the memory.
struct end { struct ibv_context *context; struct ibv_pd *pd; struct ibv_cq *cq; struct ibv_qp *qp; };

static struct end ask, answer;
static union ibv_gid gid;
static int gid_index = 1;
static unsigned char own[BYTES];
static struct ibv_mr *own_mr;

static void join(struct ibv_qp *qp, uint32_t peer) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
  const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(qp, &attr, init), "INIT");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer,
    .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
    .ah_attr = {.is_global = 1, .port_num = 1,
                .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
  const int receive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  done(ibv_modify_qp(qp, &attr, receive), "RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                              .max_rd_atomic = 4};
  const int send = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                   IBV_QP_MAX_QP_RD_ATOMIC;
  done(ibv_modify_qp(qp, &attr, send), "RTS");
}

static struct ibv_qp *make_qp(const struct end *end) {
  struct ibv_qp_init_attr init = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
    .sq_sig_all = 1,
    .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
  return have(ibv_create_qp(end->pd, &init), "ibv_create_qp");
}

static struct ibv_wc next(void) {
  struct ibv_wc wc;
  for (const long end = now_ms() + TIMEOUT_MS; ; )
    if (ibv_poll_cq(ask.cq, 1, &wc) || (answer.cq != ask.cq && ibv_poll_cq(answer.cq, 1, &wc))) return wc;
    else if (now_ms() > end) fail("no completion");
}

static void wait_for(int count, enum ibv_wc_status status) {
  for (; count; count--) {
    const struct ibv_wc wc = next();
    if (wc.status != status) fail("%s, not %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
  }
}

static void post(enum ibv_wr_opcode opcode, unsigned char *local, unsigned length, struct ibv_mr *mr,
                 unsigned char *remote, uint64_t add) {
  struct ibv_sge piece = {(uintptr_t)local, length, own_mr->lkey};
  struct ibv_send_wr *bad, wr = {.sg_list = &piece, .num_sge = 1, .opcode = opcode};
  wr.wr.rdma.remote_addr = (uintptr_t)remote;
  wr.wr.rdma.rkey = mr->rkey;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = (uintptr_t)remote;
    wr.wr.atomic.rkey = mr->rkey;
    wr.wr.atomic.compare_add = add;
  }
  done(ibv_post_send(ask.qp, &wr, &bad), "ibv_post_send");
}

static void fill(unsigned char *place, unsigned length, unsigned seed) {
  for (unsigned i = 0; i < length; i++) place[i] = i * 7 + seed;
}

static void same(const char *kind, const char *what, const unsigned char *a, const unsigned char *b,
                 unsigned length) {
  for (unsigned i = 0; i < length; i++)
    if (a[i] != b[i]) fail("%s, %s of %u bytes: byte %u is %u, not %u", kind, what, length, i, a[i], b[i]);
}

// Every operation on all of the memory's parts that are worth a look.
static void try_all(const char *kind, unsigned char *memory, unsigned bytes, bool writable) {
  const int rights = writable ? RIGHTS : IBV_ACCESS_REMOTE_READ;
  struct ibv_mr *mr = have(ibv_reg_mr(answer.pd, memory, bytes, rights), kind);
  static unsigned char expected[HUGE_BYTES];
  static const unsigned lengths[] = {1, 8, 63, 64, 65, 4095, 4096, 4097, 30000};
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    const unsigned length = lengths[i], offsets[] = {0, 3, bytes - length};
    if (length + 3 > bytes) continue;
    for (unsigned k = 0; k < 3; k++) {
      unsigned char *place = memory + offsets[k];
      memcpy(expected, memory, bytes);
      if (writable) {
        fill(own, length, length + k);
        memcpy(expected + offsets[k], own, length);
        post(IBV_WR_RDMA_WRITE, own, length, mr, place, 0);
        wait_for(1, IBV_WC_SUCCESS);
        same(kind, "WRITE", memory, expected, bytes);
        struct ibv_sge piece = {(uintptr_t)place, length, mr->lkey};
        struct ibv_recv_wr *bad, wr = {.sg_list = &piece, .num_sge = 1};
        done(ibv_post_recv(answer.qp, &wr, &bad), "ibv_post_recv");
        fill(own, length, length + k + 100);
        memcpy(expected + offsets[k], own, length);
        post(IBV_WR_SEND, own, length, mr, place, 0);
        wait_for(2, IBV_WC_SUCCESS);
        same(kind, "SEND", memory, expected, bytes);
      }
      memset(own, 0, length);
      post(IBV_WR_RDMA_READ, own, length, mr, place, 0);
      wait_for(1, IBV_WC_SUCCESS);
      same(kind, "READ", own, expected + offsets[k], length);
    }
  }
  if (writable) {
    uint64_t before, after;
    memcpy(&before, memory, 8);
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, own, 8, mr, memory, 0x100000003ull);
    wait_for(1, IBV_WC_SUCCESS);
    memcpy(&after, memory, 8);
    if (memcmp(own, &before, 8) || after != before + 0x100000003ull) fail("%s: atomic", kind);
  }
  done(ibv_dereg_mr(mr), "ibv_dereg_mr");
  printf("%s: as it should be\n", kind);
}

static unsigned char *map(size_t bytes, int flags, int fd) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) fail("mmap: %s", strerror(errno));
  return memory;
}

static int file(size_t bytes) {
  char name[] = "/tmp/rockery-memory-XXXXXX";
  int fd = mkstemp(name);
  if (fd < 0 || unlink(name) || ftruncate(fd, bytes)) fail("a file: %s", strerror(errno));
  return fd;
}

static int in_memory(size_t bytes, unsigned flags) {
  int fd = memfd_create("memory_kinds", MFD_CLOEXEC | flags);
  if (fd < 0 || ftruncate(fd, bytes)) fail("memfd: %s", strerror(errno));
  return fd;
}

// A segment that is to be destroyed stays while it is attached.
static unsigned char *segment(size_t bytes) {
  int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
  unsigned char *memory = shmat(id, NULL, 0);
  if (id < 0 || memory == (void *)-1 || shmctl(id, IPC_RMID, NULL)) fail("a segment: %s", strerror(errno));
  return memory;
}

// What a child does to its copy is not seen here, and what is written here not there.
static void across_fork(void) {
  unsigned char *memory = map(BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  memset(memory, 1, BYTES);
  struct ibv_mr *mr = have(ibv_reg_mr(answer.pd, memory, BYTES, RIGHTS), "fork");
  int to_child[2], to_parent[2];
  char token = 0;
  if (pipe(to_child) || pipe(to_parent)) fail("pipe: %s", strerror(errno));
  pid_t child = fork();
  if (!child) {
    memset(memory, 2, BYTES / 2);
    if (write(to_parent[1], &token, 1) != 1 || read(to_child[0], &token, 1) != 1) _exit(2);
    for (unsigned i = 0; i < BYTES; i++)
      if (memory[i] != (i < BYTES / 2 ? 2 : 1)) _exit(1);
    _exit(0);
  }
  if (read(to_parent[0], &token, 1) != 1) fail("the child is gone");
  fill(own, BYTES, 9);
  for (unsigned at = 0; at < BYTES; at += 4096) {
    post(IBV_WR_RDMA_WRITE, own + at, 4096, mr, memory + at, 0);
    wait_for(1, IBV_WC_SUCCESS);
  }
  same("fork", "WRITE", memory, own, BYTES);
  int status = 0;
  if (write(to_child[1], &token, 1) != 1 || waitpid(child, &status, 0) != child || status)
    fail("fork: the child sees what is written here");
  done(ibv_dereg_mr(mr), "ibv_dereg_mr");
  printf("fork: as it should be\n");
}

// Pages that were given back come again, as zeros, when something is written to them.
static void given_back(void) {
  unsigned char *memory = map(BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  memset(memory, 5, BYTES);
  struct ibv_mr *mr = have(ibv_reg_mr(answer.pd, memory, BYTES, RIGHTS), "madvise");
  if (madvise(memory, BYTES, MADV_DONTNEED)) fail("madvise: %s", strerror(errno));
  own[0] = 77;
  post(IBV_WR_RDMA_WRITE, own, 1, mr, memory + 5000, 0);
  wait_for(1, IBV_WC_SUCCESS);
  for (unsigned i = 0; i < BYTES; i++)
    if (memory[i] != (i == 5000 ? 77 : 0)) fail("madvise: byte %u is %u", i, memory[i]);
  done(ibv_dereg_mr(mr), "ibv_dereg_mr");
  printf("madvise: as it should be\n");
}

// New queue pairs, for errors end old ones.
static void connect_again(void) {
  if (ask.qp) {
    done(ibv_destroy_qp(ask.qp), "ibv_destroy_qp");
    done(ibv_destroy_qp(answer.qp), "ibv_destroy_qp");
  }
  for (struct ibv_wc wc; ibv_poll_cq(ask.cq, 1, &wc) || ibv_poll_cq(answer.cq, 1, &wc); ) {}
  ask.qp = make_qp(&ask), answer.qp = make_qp(&answer);
  join(ask.qp, answer.qp->qp_num);
  join(answer.qp, ask.qp->qp_num);
}

// A key that is gone grants nothing, and the memory stays as it is.
static void deregistered(void) {
  unsigned char *memory = map(4096, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  struct ibv_mr *mr = have(ibv_reg_mr(answer.pd, memory, 4096, RIGHTS), "dereg"), gone = *mr;
  done(ibv_dereg_mr(mr), "ibv_dereg_mr");
  own[0] = 1;
  post(IBV_WR_RDMA_WRITE, own, 1, &gone, memory, 0);
  wait_for(1, IBV_WC_REM_ACCESS_ERR);
  if (memory[0]) fail("dereg: written all the same");
  printf("dereg: as it should be\n");
}

struct taken { unsigned char *memory; struct ibv_mr *mr; unsigned after_us; };

// Takes the memory back while it is used, gives it another content, and looks whether that stays.
static void *take_back(void *argument) {
  const struct taken *taken = argument;
  usleep(taken->after_us);
  done(ibv_dereg_mr(taken->mr), "ibv_dereg_mr");
  memset(taken->memory, 7, BYTES);
  sleep_ms(10);
  for (unsigned i = 0; i < BYTES; i++)
    if (taken->memory[i] != 7) fail("dereg meanwhile: byte %u is %u", i, taken->memory[i]);
  return NULL;
}

// The same while requests are on their way, one or many at a time.
static void deregistered_meanwhile(enum ibv_wr_opcode opcode, unsigned length, unsigned depth) {
  unsigned char *memory = map(BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  for (unsigned round = 0; round < 8; round++) {
    connect_again();
    struct ibv_mr *mr = have(ibv_reg_mr(answer.pd, memory, BYTES, RIGHTS), "dereg meanwhile"), copy = *mr;
    struct taken taken = {memory, mr, 300 * round};
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_back, &taken)) fail("no thread");
    memset(own, 9, length);
    unsigned waiting = 0, failed = 0;
    while (!failed) {
      for (; waiting < depth; waiting++) post(opcode, own, length, &copy, memory, 0);
      const struct ibv_wc wc = next();
      waiting--;
      if (wc.status && wc.status != IBV_WC_REM_ACCESS_ERR) fail("%s", ibv_wc_status_str(wc.status));
      failed = wc.status;
    }
    wait_for(waiting, IBV_WC_WR_FLUSH_ERR);
    pthread_join(thread, NULL);
  }
  munmap(memory, BYTES);
  printf("dereg during %s of %u bytes: as it should be\n", opcode == IBV_WR_RDMA_READ ? "READs" : "WRITEs",
         length);
}

static void open_end(struct end *end, struct ibv_device *device) {
  end->context = have(ibv_open_device(device), "ibv_open_device");
  end->pd = have(ibv_alloc_pd(end->context), "ibv_alloc_pd");
  end->cq = have(ibv_create_cq(end->context, 64, NULL, NULL, 0), "ibv_create_cq");
}

int main(int argc, char **argv) {
  const char *name = NULL;
  bool two = false, huge_files = false;
  for (int option; (option = getopt(argc, argv, "d:g:2H")) != -1; )
    if (option == 'd') name = optarg;
    else if (option == 'g') gid_index = atoi(optarg);
    else if (option == '2') two = true;
    else if (option == 'H') huge_files = true;
    else return 2;
  struct ibv_device **list = have(ibv_get_device_list(NULL), "devices"), *device = NULL;
  for (int i = 0; list[i]; i++)
    if (!name || !strcmp(name, ibv_get_device_name(list[i]))) device = list[i];
  open_end(&ask, have(device, "the device"));
  if (two) open_end(&answer, device);
  else answer = ask;
  own_mr = have(ibv_reg_mr(ask.pd, own, sizeof own, RIGHTS), "own memory");
  done(ibv_query_gid(ask.context, 1, gid_index, &gid), "ibv_query_gid");
  connect_again();

  static unsigned char fixed[BYTES];
  unsigned char stack[BYTES];
  memset(stack, 3, sizeof stack);
  try_all("static", fixed, BYTES, true);
  try_all("stack", stack, BYTES, true);
  try_all("heap", have(malloc(BYTES), "malloc"), BYTES, true);
  try_all("anonymous", map(BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1), BYTES, true);
  try_all("anonymous, shared", map(BYTES, MAP_SHARED | MAP_ANONYMOUS, -1), BYTES, true);
  try_all("part of a page", map(4096, MAP_PRIVATE | MAP_ANONYMOUS, -1) + 104, 3000, true);
  try_all("file, shared", map(BYTES, MAP_SHARED, file(BYTES)), BYTES, true);
  try_all("file, private", map(BYTES, MAP_PRIVATE, file(BYTES)), BYTES, true);
  try_all("memory, shared", map(BYTES, MAP_SHARED, in_memory(BYTES, 0)), BYTES, true);
  try_all("System V", segment(BYTES), BYTES, true);
  if (huge_files)
    try_all("huge pages, shared", map(HUGE_BYTES, MAP_SHARED, in_memory(HUGE_BYTES, MFD_HUGETLB)), HUGE_BYTES,
            true);
  unsigned char *sealed = map(BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  fill(sealed, BYTES, 1);
  if (mprotect(sealed, BYTES, PROT_READ)) fail("mprotect: %s", strerror(errno));
  try_all("read-only", sealed, BYTES, false);
  unsigned char *huge = map(2 * HUGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  huge = (unsigned char *)(((uintptr_t)huge + HUGE_BYTES - 1) & -(uintptr_t)HUGE_BYTES);
  if (madvise(huge, HUGE_BYTES, MADV_HUGEPAGE)) fail("MADV_HUGEPAGE: %s", strerror(errno));
  try_all("huge pages", huge, HUGE_BYTES, true);
  across_fork();
  given_back();
  deregistered();
  deregistered_meanwhile(IBV_WR_RDMA_WRITE, 64, 1);
  deregistered_meanwhile(IBV_WR_RDMA_WRITE, BYTES, 8);
  deregistered_meanwhile(IBV_WR_RDMA_READ, 64, 1);
  deregistered_meanwhile(IBV_WR_RDMA_READ, BYTES, 8);
  return 0;
}
