// memory_changed PATH: what becomes of requests when registered memory is taken away. PATH is `one`, both
// ends in one process, or `two`. Each case is a process of its own, or two: an owner changes its memory after
// it was registered, and then it or its peer, the other end, moves bytes to or from it. A process that ends
// by a signal, a request without a completion and a wrong status are printed: memory, change, who serves the
// owner's network (its poll loop, or nothing but the library), operation, bytes, and the results of owner and
// peer.
#include "device.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { LENGTH = 256 << 10, SECONDS = 20 };
enum kind { PRIVATE, SHARED, KINDS };
enum change { NOTHING, UNMAPPED, PROTECTED, READ_ONLY, TRUNCATED, REPLACED, CHANGES };
enum server { LIBRARY, POLL_LOOP, SERVERS };
enum operation { WRITE, READ, ATOMIC, RECEIVE, OWN_SEND, OWN_WRITE, OWN_READ, OPERATIONS };

static const char *const kinds[] = {"private", "shared"};
static const char *const changes[] = {"nothing", "unmapped", "protected", "read-only", "truncated",
                                      "replaced"};
static const char *const servers[] = {"library", "poll loop"};
static const char *const operations[] = {"WRITE", "READ", "atomic", "receive", "own SEND", "own WRITE",
                                         "own READ"};
static const uint32_t sizes[] = {8, 64, 4096, 100000};

struct end {
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
  struct ibv_mr *mr;
  char *memory;
  int file;
};

// What an end has to know of the other.
struct told {
  uint32_t qpn, rkey;
  uint64_t address;
};

struct scenario {
  enum kind kind;
  enum change change;
  enum server server;
  enum operation operation;
  uint32_t bytes;
};

static void allocate(struct end *end, enum kind kind) {
  end->file = kind == SHARED ? memfd_create("memory", 0) : -1;
  if (end->file >= 0) done(ftruncate(end->file, LENGTH), "ftruncate");
  int flags = kind == SHARED ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  end->memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, flags, end->file, 0);
  if (end->memory == MAP_FAILED) fail("mmap");
  memset(end->memory, 1, LENGTH);
}

static struct told make(struct end *end, enum kind kind) {
  end->context = open_device("rk_lo");
  end->pd = have(ibv_alloc_pd(end->context), "ibv_alloc_pd");
  end->cq = have(ibv_create_cq(end->context, 16, NULL, NULL, 0), "ibv_create_cq");
  allocate(end, kind);
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
               IBV_ACCESS_REMOTE_ATOMIC;
  end->mr = have(ibv_reg_mr(end->pd, end->memory, LENGTH, access), "ibv_reg_mr");
  struct ibv_qp_init_attr attr = {.send_cq = end->cq, .recv_cq = end->cq, .cap = {4, 4, 1, 1, 0},
                                  .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  end->qp = have(ibv_create_qp(end->pd, &attr), "ibv_create_qp");
  return (struct told){end->qp->qp_num, end->mr->rkey, (uintptr_t)end->memory};
}

static void change_state(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask) {
  done(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp");
}

static void join(struct end *end, struct told other) {
  union ibv_gid gid;
  done(ibv_query_gid(end->context, 1, 1, &gid), "ibv_query_gid");
  change_state(end->qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1,
               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC},
               IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  change_state(end->qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
               .dest_qp_num = other.qpn, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
               .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1}}},
               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  change_state(end->qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
               .rnr_retry = 7, .max_rd_atomic = 1},
               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
}

static void receive(struct end *end) {
  struct ibv_sge sge = {(uintptr_t)end->memory, LENGTH, end->mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  done(ibv_post_recv(end->qp, &wr, &bad), "ibv_post_recv");
}

static void request(struct end *end, enum ibv_wr_opcode opcode, struct told other, uint32_t bytes) {
  struct ibv_sge sge = {(uintptr_t)end->memory, bytes, end->mr->lkey};
  struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1}, *bad;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = other.address;
    wr.wr.atomic.rkey = other.rkey;
    wr.wr.atomic.compare_add = 1;
  } else {
    wr.wr.rdma.remote_addr = other.address;
    wr.wr.rdma.rkey = other.rkey;
  }
  done(ibv_post_send(end->qp, &wr, &bad), "ibv_post_send");
}

// The status of the next completion.
static int status(struct end *end) {
  long until = now_ms() + SECONDS * 1000;
  struct ibv_wc wc;
  int found;
  while (!(found = ibv_poll_cq(end->cq, 1, &wc)))
    if (now_ms() > until) fail("no completion");
  if (found < 0) fail("ibv_poll_cq");
  return wc.status;
}

static void take_away(struct end *end, enum change change) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  switch (change) {
  case UNMAPPED: done(munmap(end->memory, LENGTH), "munmap"); break;
  case PROTECTED: done(mprotect(end->memory, LENGTH, PROT_NONE), "mprotect"); break;
  case READ_ONLY: done(mprotect(end->memory, LENGTH, PROT_READ), "mprotect"); break;
  case TRUNCATED: done(ftruncate(end->file, 0), "ftruncate"); break;
  case REPLACED:
    if (mmap(end->memory, LENGTH, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) fail("mmap");
    break;
  default: break;
  }
}

static int is_own(enum operation operation) { return operation >= OWN_SEND; }

static enum ibv_wr_opcode opcode(enum operation operation) {
  switch (operation) {
  case WRITE: case OWN_WRITE: return IBV_WR_RDMA_WRITE;
  case READ: case OWN_READ: return IBV_WR_RDMA_READ;
  case ATOMIC: return IBV_WR_ATOMIC_FETCH_AND_ADD;
  default: return IBV_WR_SEND;
  }
}

// The requesting end posts, and says how its request ended.
static int ask(struct end *end, struct told other, const struct scenario *it) {
  request(end, opcode(it->operation), other, it->bytes);
  return status(end);
}

static int in_one_process(const struct scenario *it) {
  struct end owner, peer;
  struct told of_owner = make(&owner, it->kind), of_peer = make(&peer, PRIVATE);
  join(&owner, of_peer), join(&peer, of_owner);
  if (it->operation == RECEIVE) receive(&owner);
  if (it->operation == OWN_SEND) receive(&peer);
  take_away(&owner, it->change);
  return is_own(it->operation) ? ask(&owner, of_peer, it) : ask(&peer, of_owner, it);
}

// Until the peer has its status, the owner polls, or waits for a byte.
static void serve(struct end *owner, int peer, enum server server) {
  struct pollfd waits = {.fd = peer, .events = POLLIN};
  struct ibv_wc wc;
  while (!poll(&waits, 1, server == POLL_LOOP ? 0 : SECONDS * 1000))
    if (server == POLL_LOOP) ibv_poll_cq(owner->cq, 1, &wc);
}

static int own(const struct scenario *it, int peer) {
  struct end owner;
  struct told of_owner = make(&owner, it->kind), of_peer;
  exchange(peer, &of_owner, &of_peer, sizeof of_peer);
  join(&owner, of_peer);
  if (it->operation == RECEIVE) receive(&owner);
  char byte = 0;
  exchange(peer, &byte, &byte, 1);
  // A request that succeeds first: the ends know how to reach each other.
  exchange(peer, &byte, &byte, 1);
  take_away(&owner, it->change);
  exchange(peer, &byte, &byte, 1);
  int ended = is_own(it->operation) ? ask(&owner, of_peer, it) : 0;
  if (!is_own(it->operation)) serve(&owner, peer, it->server);
  exchange(peer, &byte, &byte, 1);
  return ended;
}

static int be_peer(const struct scenario *it, int owner) {
  struct end peer;
  struct told of_peer = make(&peer, PRIVATE), of_owner;
  exchange(owner, &of_peer, &of_owner, sizeof of_owner);
  join(&peer, of_owner);
  if (it->operation == OWN_SEND) receive(&peer);
  char byte = 0;
  exchange(owner, &byte, &byte, 1);
  request(&peer, IBV_WR_RDMA_WRITE, of_owner, 8);
  if (status(&peer)) fail("the first WRITE");
  exchange(owner, &byte, &byte, 1);
  exchange(owner, &byte, &byte, 1);
  int ended = is_own(it->operation) ? 0 : ask(&peer, of_owner, it);
  exchange(owner, &byte, &byte, 1);
  return ended;
}

// Runs an end in a process of its own: its status, or a signal's number and 1000.
static pid_t start(int (*end)(const struct scenario *, int), const struct scenario *it, int channel,
                   int closed) {
  pid_t child = fork();
  if (child) return child;
  close(closed);
  alarm(4 * SECONDS);
  _exit(end(it, channel));
}

static int result(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child) fail("waitpid");
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int alone(const struct scenario *it, int unused) { (void)unused; return in_one_process(it); }

// Whether the owner's memory is only read.
static int only_reads(enum operation operation) {
  return operation == READ || operation == OWN_SEND || operation == OWN_WRITE;
}

// An adapter would access the pages that it has pinned, and so does a peer that executes a request itself, on
// memory that both map or that the kernel copies without looking at the protection.
static int may_succeed(const struct scenario *it, int two) {
  if (is_own(it->operation) || !two) return 0;
  return it->change == PROTECTED || it->change == READ_ONLY || (it->change == UNMAPPED && it->kind == SHARED);
}

static int is_right(const struct scenario *it, int two, const int results[2]) {
  int is_owners = is_own(it->operation) || !two;
  int status = results[!is_owners], other = results[is_owners];
  if (other || status >= 1000) return 0;
  int succeeds = it->change == NOTHING || it->change == REPLACED ||
                 (it->change == READ_ONLY && only_reads(it->operation));
  return succeeds ? !status : status || may_succeed(it, two);
}

static void run(const struct scenario *it, int two, int results[2]) {
  int pair[2];
  done(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
  pid_t owner = start(two ? own : alone, it, pair[0], pair[1]);
  pid_t peer = two ? start(be_peer, it, pair[1], pair[0]) : 0;
  close(pair[0]), close(pair[1]);
  results[0] = result(owner), results[1] = two ? result(peer) : 0;
}

static int is_possible(const struct scenario *it, int two) {
  if (it->change == TRUNCATED && it->kind != SHARED) return 0;
  if (it->operation == ATOMIC && it->bytes != 8) return 0;
  // Only an end that is served has a server.
  return it->server == LIBRARY || (two && !is_own(it->operation));
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  int two = !strcmp(argv[1], "two"), wrong = 0;
  struct scenario it;
  for (int kind = 0; kind < KINDS; kind++)
    for (int change = 0; change < CHANGES; change++)
      for (int server = 0; server < SERVERS; server++)
        for (int operation = 0; operation < OPERATIONS; operation++)
          for (unsigned size = 0; size < sizeof sizes / sizeof *sizes; size++) {
            it = (struct scenario){kind, change, server, operation, sizes[size]};
            if (!is_possible(&it, two)) continue;
            int results[2];
            run(&it, two, results);
            if (is_right(&it, two, results)) continue;
            wrong = 1;
            printf("%s, %s, %s, %s, %u: %d %d\n", kinds[kind], changes[change], servers[server],
                   operations[operation], sizes[size], results[0], results[1]);
            fflush(stdout);
          }
  puts(wrong ? "wrong" : "right");
  return wrong;
}
