// domain: an XRC domain of several processes. One holds the queue pair, another the shared receive queue that
// messages name, a third one asks; a fourth tells all of them what to do and looks at what comes of it.
//
//   domain [-d DEVICE] [-g GID_INDEX] FILE            has the domain, which FILE names
//   domain [-d DEVICE] [-g GID_INDEX] FILE ADDRESS    goes there, and asks
//
// Prints a line for each thing that went as it should.

#include "device.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PORT "18541"
#define BYTES (256u << 10)
#define LARGE (100u << 10)
#define LENGTH 64u
#define DEPTH 64
#define KILLS 6
#define TIMEOUT_MS 60000
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ANY_OF(first, second) ((first) << 8 | (second))

enum what { HELLO, HOLD, ASK, LINK, POST, SEND, NEXT, FILL, HOLDS, DRAIN, LEAVE };

// What the one tells the others, and what they answer.
struct order {
  enum what what;
  uint32_t qpn, srqn, rkey, length, offset, opcode, status, immediate;
  uint64_t address;
  union ibv_gid gid;
};
struct card { uint32_t qpn, srqn, rkey, result; uint64_t address; union ibv_gid gid; };

static const char *device, *file;
static int gid_index = 1;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct ibv_xrcd *xrcd;
static struct ibv_srq *srq;
static unsigned char memory[BYTES] __attribute__((aligned(4096)));

static struct ibv_xrcd *open_domain(int oflags) {
  const int fd = open(file, O_RDONLY);
  struct ibv_xrcd_init_attr attr = {.fd = fd, .oflags = oflags,
    .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS};
  struct ibv_xrcd *opened = ibv_open_xrcd(context, &attr);
  const int error = errno;
  close(fd);
  errno = error;
  return opened;
}

static void share(void) {
  xrcd = have(open_domain(O_CREAT), "ibv_open_xrcd");
  struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = DEPTH, .max_sge = 1}, .srq_type = IBV_SRQT_XRC,
    .pd = pd, .xrcd = xrcd, .cq = cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
      IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
  srq = have(ibv_create_srq_ex(context, &init), "ibv_create_srq_ex");
}

static void make_qp(enum ibv_qp_type type) {
  struct ibv_qp_init_attr_ex init = {.qp_type = type, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
  if (type == IBV_QPT_XRC_SEND)
    init = (struct ibv_qp_init_attr_ex){.qp_type = type, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
      .send_cq = cq, .sq_sig_all = 1, .cap = {.max_send_wr = DEPTH + 1, .max_send_sge = 1}};
  if (qp) done(ibv_destroy_qp(qp), "ibv_destroy_qp");
  qp = have(ibv_create_qp_ex(context, &init), "ibv_create_qp_ex");
}

static void link_qp(const struct order *order) {
  const bool sends = qp->qp_type == IBV_QPT_XRC_SEND;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(qp, &attr, mask), "INIT");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = order->qpn,
    .max_dest_rd_atomic = 4, .min_rnr_timer = 10,
    .ah_attr = {.is_global = 1, .port_num = 1,
                .grh = {.dgid = order->gid, .sgid_index = gid_index, .hop_limit = 64}}};
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (!sends) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  done(ibv_modify_qp(qp, &attr, mask), "RTR");
  if (!sends) return;
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7,
                              .max_rd_atomic = 4};
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
    IBV_QP_MAX_QP_RD_ATOMIC;
  done(ibv_modify_qp(qp, &attr, mask), "RTS");
}

static void post_send(const struct order *order) {
  struct ibv_sge piece = {(uintptr_t)memory + order->offset, order->length, mr->lkey};
  struct ibv_send_wr *bad, wr = {.sg_list = &piece, .num_sge = 1, .opcode = order->opcode,
                                 .imm_data = order->immediate};
  wr.qp_type.xrc.remote_srqn = order->srqn;
  if (order->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || order->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = order->address;
    wr.wr.atomic.rkey = order->rkey;
    wr.wr.atomic.compare_add = 0x0101010101010101ull * (order->immediate & 0xff);
    wr.wr.atomic.swap = 0x0101010101010101ull * (order->immediate >> 8);
  } else {
    wr.wr.rdma.remote_addr = order->address;
    wr.wr.rdma.rkey = order->rkey;
  }
  done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

static void post_receive(const struct order *order) {
  struct ibv_sge piece = {(uintptr_t)memory + order->offset, order->length, mr->lkey};
  struct ibv_recv_wr *bad, wr = {.sg_list = &piece, .num_sge = 1};
  done(ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

static struct ibv_wc next(void) {
  struct ibv_wc wc;
  for (const long end = now_ms() + TIMEOUT_MS; !ibv_poll_cq(cq, 1, &wc);)
    if (now_ms() > end) fail("no completion");
  return wc;
}

static void expect(const struct order *order) {
  const struct ibv_wc wc = next();
  if (wc.status != (order->status & 0xff) && wc.status != order->status >> 8)
    fail("%s, not %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(order->status & 0xff));
  if (wc.status) return;
  if (wc.opcode != order->opcode) fail("a completion of %d, not %d", wc.opcode, order->opcode);
  if (order->qpn && wc.qp_num != order->qpn) fail("of queue pair %u, not %u", wc.qp_num, order->qpn);
  if ((wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data != order->immediate) fail("another immediate");
  if (wc.opcode == IBV_WC_RECV && wc.byte_len != order->length) fail("%u bytes", wc.byte_len);
}

// Requests that were posted, some of which were executed: one that failed, then those that were flushed.
static void drain(const struct order *order) {
  bool failed = false;
  for (unsigned left = order->length; left--;) {
    const enum ibv_wc_status status = next().status;
    const bool told = status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
      status == IBV_WC_RETRY_EXC_ERR;
    if (failed ? status != IBV_WC_WR_FLUSH_ERR : status != IBV_WC_SUCCESS && !told)
      fail("%s after %s", ibv_wc_status_str(status), failed ? "an error" : "success");
    failed |= status != IBV_WC_SUCCESS;
  }
}

static void holds(const struct order *order) {
  for (unsigned i = 0; i < order->length; i++)
    if (memory[order->offset + i] != (order->immediate & 0xff))
      fail("byte %u is %u, not %u", order->offset + i, memory[order->offset + i], order->immediate & 0xff);
}

static void leave(void) {
  if (qp) done(ibv_destroy_qp(qp), "ibv_destroy_qp");
  if (srq) done(ibv_destroy_srq(srq), "ibv_destroy_srq");
  if (xrcd) done(ibv_close_xrcd(xrcd), "ibv_close_xrcd");
  qp = NULL, srq = NULL, xrcd = NULL;
}

// Executes commands of the first process until its pipe is closed.
static void serve(int orders, bool shares) {
  context = open_device(device);
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  cq = have(ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0), "ibv_create_cq");
  mr = have(ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | REMOTE), "ibv_reg_mr");
  if (shares) share();
  for (struct order order; recv(orders, &order, sizeof order, MSG_WAITALL) == sizeof order;) {
    struct card card = {.rkey = mr->rkey, .address = (uintptr_t)memory};
    switch (order.what) {
      case HELLO: break;
      case HOLD: make_qp(IBV_QPT_XRC_RECV); break;
      case ASK: make_qp(IBV_QPT_XRC_SEND); break;
      case LINK: link_qp(&order); break;
      case POST: post_receive(&order); break;
      case SEND: post_send(&order); break;
      case NEXT: expect(&order); break;
      case FILL: memset(memory + order.offset, order.immediate, order.length); break;
      case HOLDS: holds(&order); break;
      case DRAIN: drain(&order); break;
      case LEAVE: leave(); break;
    }
    done(ibv_query_gid(context, 1, gid_index, &card.gid), "ibv_query_gid");
    if (srq) done(ibv_get_srq_num(srq, &card.srqn), "ibv_get_srq_num");
    if (qp) card.qpn = qp->qp_num;
    if (send(orders, &card, sizeof card, MSG_NOSIGNAL) != sizeof card) break;
  }
}

// A process that executes our commands, and its last answer.
struct member { int orders; pid_t process; struct card card; };

static struct card tell(struct member *member, struct order order) {
  if (send(member->orders, &order, sizeof order, MSG_NOSIGNAL) != sizeof order ||
      recv(member->orders, &member->card, sizeof member->card, MSG_WAITALL) != sizeof member->card)
    fail("one of us is gone");
  return member->card;
}

static struct member new_member(void) {
  int ends[2];
  done(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
  fflush(stdout);
  struct member member = {.orders = ends[0], .process = fork()};
  if (!member.process) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    serve(ends[1], true);
    exit(0);
  }
  close(ends[1]);
  tell(&member, (struct order){.what = HELLO});
  return member;
}

static void end(struct member *member, bool kills) {
  int status;
  if (kills) kill(member->process, SIGKILL);
  else tell(member, (struct order){.what = LEAVE});
  close(member->orders);
  waitpid(member->process, &status, 0);
  if (!kills && status) fail("one of us failed");
}

static void join(struct member *asker, struct member *holder) {
  const struct card asks = tell(asker, (struct order){.what = ASK});
  const struct card holds = tell(holder, (struct order){.what = HOLD});
  tell(holder, (struct order){.what = LINK, .qpn = asks.qpn, .gid = asks.gid});
  tell(asker, (struct order){.what = LINK, .qpn = holds.qpn, .gid = holds.gid});
}

static void receive_into(struct member *owner, uint32_t offset, uint32_t length) {
  tell(owner, (struct order){.what = POST, .offset = offset, .length = length});
}

static void start(struct member *asker, const struct member *owner, enum ibv_wr_opcode opcode,
                  uint32_t offset, uint32_t length, uint32_t immediate) {
  tell(asker, (struct order){.what = SEND, .opcode = opcode, .srqn = owner->card.srqn, .length = length,
    .rkey = owner->card.rkey, .address = owner->card.address + offset, .immediate = immediate});
}

static void ends_with(struct member *asker, uint32_t status, enum ibv_wc_opcode opcode) {
  tell(asker, (struct order){.what = NEXT, .status = status, .opcode = opcode});
}

static void arrives(struct member *owner, uint32_t qpn, enum ibv_wc_opcode opcode, uint32_t length,
                    uint32_t immediate) {
  tell(owner, (struct order){.what = NEXT, .opcode = opcode, .length = length, .immediate = immediate,
                             .qpn = qpn});
}

static void fill(struct member *member, uint32_t length, unsigned char byte) {
  tell(member, (struct order){.what = FILL, .length = length, .immediate = byte});
}

static void has(struct member *member, uint32_t offset, uint32_t length, unsigned char byte) {
  tell(member, (struct order){.what = HOLDS, .offset = offset, .length = length, .immediate = byte});
}

static void send_one(struct member *asker, struct member *owner, uint32_t qpn, unsigned char byte) {
  receive_into(owner, 0, LENGTH);
  fill(asker, LENGTH, byte);
  start(asker, owner, IBV_WR_SEND, 0, LENGTH, 0);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_SEND);
  arrives(owner, qpn, IBV_WC_RECV, LENGTH, 0);
  has(owner, 0, LENGTH, byte);
}

static void every_operation(struct member *asker, struct member *holder, struct member *owner) {
  const uint32_t qpn = holder->card.qpn;
  for (unsigned char byte = 1; byte <= 6; byte++) send_one(asker, byte % 3 ? owner : holder, qpn, byte);
  receive_into(owner, 0, LARGE);
  receive_into(owner, 0, LENGTH);
  fill(asker, LARGE, 11);
  start(asker, owner, IBV_WR_SEND_WITH_IMM, 0, LARGE, 77);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_SEND);
  arrives(owner, qpn, IBV_WC_RECV, LARGE, 77);
  has(owner, 0, LARGE, 11);
  fill(asker, LARGE, 12);
  start(asker, owner, IBV_WR_RDMA_WRITE, 0, LARGE, 0);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
  has(owner, 0, LARGE, 12);
  fill(asker, LENGTH, 13);
  start(asker, owner, IBV_WR_RDMA_WRITE_WITH_IMM, 0, LENGTH, 78);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
  arrives(owner, qpn, IBV_WC_RECV_RDMA_WITH_IMM, 0, 78);
  has(owner, 0, LENGTH, 13);
  start(asker, owner, IBV_WR_RDMA_READ, LENGTH, LARGE - LENGTH, 0);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
  has(asker, 0, LARGE - LENGTH, 12);
  start(asker, owner, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, 13 | 20 << 8);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
  has(asker, 0, 8, 13);
  start(asker, owner, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 1);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
  has(asker, 0, 8, 20);
  has(owner, 0, 8, 21);
}

static void not_ready(struct member *asker, struct member *holder, struct member *owner) {
  fill(asker, LENGTH, 31);
  start(asker, owner, IBV_WR_SEND, 0, LENGTH, 0);
  start(asker, holder, IBV_WR_RDMA_WRITE, 0, LENGTH, 0);
  sleep_ms(30);
  receive_into(owner, 0, LENGTH);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_SEND);
  ends_with(asker, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
  arrives(owner, holder->card.qpn, IBV_WC_RECV, LENGTH, 0);
  has(owner, 0, LENGTH, 31);
  has(holder, 0, LENGTH, 31);
}

static void many(struct member *asker, struct member *holder, struct member *owner) {
  join(asker, holder);
  for (unsigned i = 0; i < DEPTH; i++) receive_into(i % 4 ? owner : holder, i * LENGTH, LENGTH);
  for (unsigned i = 0; i < DEPTH; i++) start(asker, i % 4 ? owner : holder, IBV_WR_SEND, 0, LENGTH, 0);
  for (unsigned i = 0; i < DEPTH; i++) ends_with(asker, IBV_WC_SUCCESS, IBV_WC_SEND);
  for (unsigned i = 0; i < DEPTH; i++)
    arrives(i % 4 ? owner : holder, holder->card.qpn, IBV_WC_RECV, LENGTH, 0);
}

// A number of a queue that the owner has not, and one of no process at all.
static void nobodys(struct member *asker, struct member *holder, const struct member *owner) {
  struct member wrong = *owner;
  for (unsigned i = 0; i < 2; i++) {
    wrong.card.srqn = i ? 0xfe0000 : owner->card.srqn + 100;
    join(asker, holder);
    start(asker, &wrong, IBV_WR_SEND, 0, LENGTH, 0);
    ends_with(asker, IBV_WC_REM_INV_REQ_ERR, IBV_WC_SEND);
  }
}

// Both go on with others.
static void dies(struct member *asker, struct member *holder, struct member *owner) {
  for (unsigned i = 0; i < KILLS; i++) {
    join(asker, holder);
    send_one(asker, owner, holder->card.qpn, 40 + i);
    for (unsigned k = 0; k < DEPTH; k++) start(asker, owner, IBV_WR_RDMA_WRITE, 0, LARGE, 0);
    end(owner, true);
    start(asker, owner, IBV_WR_RDMA_WRITE, 0, LENGTH, 0);
    tell(asker, (struct order){.what = DRAIN, .length = DEPTH + 1});
    join(asker, holder);
    send_one(asker, holder, holder->card.qpn, 50 + i);
    *owner = new_member();
  }
  join(asker, holder);
  for (unsigned k = 0; k < DEPTH - 1; k++) start(asker, owner, IBV_WR_RDMA_WRITE, 0, LARGE, 0);
  end(holder, true);
  start(asker, owner, IBV_WR_RDMA_WRITE, 0, LENGTH, 0);
  tell(asker, (struct order){.what = DRAIN, .length = DEPTH});
  *holder = new_member();
  join(asker, holder);
  send_one(asker, owner, holder->card.qpn, 60);
}

// The first process creates the domain, which exists until no process has it open.
static void flags(void) {
  context = open_device(device);
  if (open_domain(0) || errno != EAGAIN) fail("a domain that no process has was opened: %s", strerror(errno));
  struct member first = new_member();
  if (open_domain(O_CREAT | O_EXCL) || errno != EINVAL) fail("a domain was made twice");
  struct ibv_xrcd *opened = have(open_domain(0), "the domain of another process");
  end(&first, false);
  struct member second = new_member();
  done(ibv_close_xrcd(opened), "ibv_close_xrcd");
  end(&second, true);
  for (const long until = now_ms() + TIMEOUT_MS; (opened = open_domain(0)); sleep_ms(1)) {
    done(ibv_close_xrcd(opened), "ibv_close_xrcd");
    if (now_ms() > until) fail("a domain outlives the processes that had it open");
  }
  opened = have(open_domain(O_CREAT | O_EXCL), "a new domain");
  done(ibv_close_xrcd(opened), "ibv_close_xrcd");
  done(ibv_close_device(context), "ibv_close_device");
}

static void well(const char *what) { printf("%s: as it should be\n", what); }

int main(int argc, char **argv) {
  for (int option; (option = getopt(argc, argv, "d:g:")) != -1;)
    if (option == 'd') device = optarg;
    else if (option == 'g') gid_index = atoi(optarg);
    else return 2;
  file = argv[optind++];
  if (optind < argc) {
    serve(meet(argv[optind], PORT), false);
    return 0;
  }
  const int peer = meet(NULL, PORT);
  flags();
  well("permission to open a domain");
  struct member asker = {.orders = peer}, owner = new_member(), holder = new_member();
  join(&asker, &holder);
  every_operation(&asker, &holder, &owner);
  well("every operation on another process's queue");
  not_ready(&asker, &holder, &owner);
  many(&asker, &holder, &owner);
  well("order, and queues that are not ready");
  nobodys(&asker, &holder, &owner);
  well("queues without an owner");
  dies(&asker, &holder, &owner);
  well("processes that are killed");
  end(&holder, false);
  end(&owner, false);
  return 0;
}
