// srq_xrc: between two programs, what other tests do within one: shared receive queues and their limit,
// solicited events, windows and their invalidation, and every operation of XRC.
//
//   srq_xrc [-d DEVICE] [-g GID_INDEX]            waits for the other side, and has the memory
//   srq_xrc [-d DEVICE] [-g GID_INDEX] ADDRESS    goes to it, and asks
//
// Prints a line for each thing that went as it should.

#include "device.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>

#define PORT "18523"
#define BYTES 4096u
#define LENGTH 64u
#define RECEIVES 6
#define LIMIT 3
#define TIMEOUT_MS 30000
#define QUIET_MS 50              // after which an event that has not come will not come
#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | REMOTE | IBV_ACCESS_MW_BIND)

struct card { uint32_t qpn, rkey, srqn; uint64_t address; union ibv_gid gid; };

static bool asks;
static int peer, gid_index = 1;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct card mine, theirs;
static unsigned char memory[BYTES] __attribute__((aligned(4096)));

// One side is done with something that the other waits for.
static void in_step(void) {
  char token = 0;
  exchange(peer, &token, &token, 1);
}

static void well(const char *what) { printf("%s: as it should be\n", what); }

static void join(struct ibv_qp *qp) {
  const bool receives = qp->qp_type != IBV_QPT_XRC_SEND, sends = qp->qp_type != IBV_QPT_XRC_RECV;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(qp, &attr, mask), "INIT");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = theirs.qpn,
    .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
    .ah_attr = {.is_global = 1, .port_num = 1,
                .grh = {.dgid = theirs.gid, .sgid_index = gid_index, .hop_limit = 64}}};
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (receives) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  done(ibv_modify_qp(qp, &attr, mask), "RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7,
                              .max_rd_atomic = 4};
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
  if (sends) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  done(ibv_modify_qp(qp, &attr, mask), "RTS");
  in_step();
}

static struct ibv_qp *connected(struct ibv_qp *qp, uint32_t srqn) {
  have(qp, "ibv_create_qp");
  mine.qpn = qp->qp_num;
  mine.srqn = srqn;
  exchange(peer, &mine, &theirs, sizeof mine);
  join(qp);
  return qp;
}

static struct ibv_qp *connected_rc(void) {
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
    .sq_sig_all = 1, .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = LENGTH}};
  return connected(ibv_create_qp(pd, &init), 0);
}

static struct ibv_wc next(enum ibv_wc_status status, enum ibv_wc_opcode opcode) {
  struct ibv_wc wc;
  for (const long end = now_ms() + TIMEOUT_MS; !ibv_poll_cq(cq, 1, &wc);)
    if (now_ms() > end) fail("no completion");
  if (wc.status != status) fail("%s, not %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
  if (!status && wc.opcode != opcode) fail("a completion of %d, not %d", wc.opcode, opcode);
  return wc;
}

static void receive(struct ibv_srq *queue, unsigned offset) {
  struct ibv_sge piece = {(uintptr_t)memory + offset, LENGTH, mr->lkey};
  struct ibv_recv_wr *bad, wr = {.wr_id = offset, .sg_list = &piece, .num_sge = 1};
  done(ibv_post_srq_recv(queue, &wr, &bad), "ibv_post_srq_recv");
}

// From the start of our memory, of which every byte is `byte`, to an offset of theirs.
static struct ibv_send_wr request(enum ibv_wr_opcode opcode, unsigned char byte, unsigned offset,
                                  struct ibv_sge *piece) {
  memset(memory, byte, LENGTH);
  *piece = (struct ibv_sge){(uintptr_t)memory, LENGTH, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = piece, .num_sge = 1, .opcode = opcode};
  wr.wr.rdma.remote_addr = theirs.address + offset;
  wr.wr.rdma.rkey = theirs.rkey;
  wr.qp_type.xrc.remote_srqn = theirs.srqn;
  return wr;
}

static void ask(struct ibv_qp *qp, struct ibv_send_wr *wr, enum ibv_wc_status status,
                enum ibv_wc_opcode opcode) {
  struct ibv_send_wr *bad;
  done(ibv_post_send(qp, wr, &bad), "ibv_post_send");
  next(status, opcode);
}

static void send_one(struct ibv_qp *qp, unsigned char byte, unsigned flags) {
  struct ibv_sge piece;
  struct ibv_send_wr wr = request(IBV_WR_SEND, byte, 0, &piece);
  wr.send_flags = flags;
  ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_SEND);
}

static void holds(unsigned offset, unsigned char byte) {
  for (unsigned i = 0; i < LENGTH; i++)
    if (memory[offset + i] != byte) fail("byte %u is %u, not %u", offset + i, memory[offset + i], byte);
}

static bool has_event(int fd) {
  struct pollfd pollfd = {.fd = fd, .events = POLLIN};
  return poll(&pollfd, 1, QUIET_MS) > 0;
}

static void wait_for_event(void) {
  struct ibv_cq *of;
  void *cookie;
  done(ibv_get_cq_event(channel, &of, &cookie), "ibv_get_cq_event");
  ibv_ack_cq_events(of, 1);
  if (of != cq) fail("an event of another queue");
}

// Six receives: the second SEND is solicited, the fourth leaves fewer than three receives, the seventh waits.
static void shared_queue(struct ibv_qp *qp) {
  if (asks) {
    in_step();
    send_one(qp, 1, 0);
    in_step();
    in_step();
    send_one(qp, 2, IBV_SEND_SOLICITED);
    send_one(qp, 3, 0);
    in_step();
    for (unsigned char byte = 4; byte <= 7; byte++) send_one(qp, byte, 0);
    in_step();
    return;
  }
  for (unsigned i = 0; i < RECEIVES; i++) receive(srq, i * LENGTH);
  struct ibv_srq_attr attr = {.srq_limit = LIMIT};
  done(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), "ibv_modify_srq");
  done(ibv_req_notify_cq(cq, 1), "ibv_req_notify_cq");
  in_step();
  in_step();
  if (has_event(channel->fd)) fail("an unsolicited event");
  in_step();
  wait_for_event();
  in_step();
  for (unsigned i = 0; i < 3; i++) next(IBV_WC_SUCCESS, IBV_WC_RECV);
  struct ibv_async_event event;
  done(ibv_get_async_event(context, &event), "ibv_get_async_event");
  if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED || event.element.srq != srq)
    fail("%s", ibv_event_type_str(event.event_type));
  ibv_ack_async_event(&event);
  for (unsigned i = 3; i < RECEIVES; i++) next(IBV_WC_SUCCESS, IBV_WC_RECV);
  sleep_ms(QUIET_MS);
  receive(srq, RECEIVES * LENGTH);
  next(IBV_WC_SUCCESS, IBV_WC_RECV);
  in_step();
  for (unsigned i = 0; i <= RECEIVES; i++) holds(i * LENGTH, i + 1);
}

// The owner has a key for the asker.
static void pass_key(uint32_t rkey) {
  uint32_t other;
  exchange(peer, &rkey, &other, sizeof rkey);
  if (asks) theirs.rkey = other;
}

static void write_with_key(struct ibv_qp *qp, unsigned char byte, enum ibv_wc_status status) {
  struct ibv_sge piece;
  struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, byte, 1024, &piece);
  ask(qp, &wr, status, IBV_WC_RDMA_WRITE);
}

// A window opens, is used, is closed by the asker (type 2) or by its owner (type 1), and is of no use.
static void window(struct ibv_qp *qp, enum ibv_mw_type type) {
  struct ibv_sge piece;
  if (asks) {
    pass_key(0);
    write_with_key(qp, 41, IBV_WC_SUCCESS);
    if (type == IBV_MW_TYPE_2) {
      struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, 42, 0, &piece);
      wr.invalidate_rkey = theirs.rkey;
      ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_SEND);
    }
    in_step();
    in_step();
    write_with_key(qp, 43, IBV_WC_REM_ACCESS_ERR);
    in_step();
    return;
  }
  struct ibv_mw *mw = have(ibv_alloc_mw(pd, type), "ibv_alloc_mw");
  const struct ibv_mw_bind_info info = {mr, (uintptr_t)memory + 1024, LENGTH, IBV_ACCESS_REMOTE_WRITE};
  struct ibv_mw_bind bind = {.bind_info = info}, unbind = {.bind_info = {.mr = mr}};
  if (type == IBV_MW_TYPE_2) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW,
      .bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = info}};
    ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    mw->rkey = wr.bind_mw.rkey;
    receive(srq, 0);
  } else {
    done(ibv_bind_mw(qp, mw, &bind), "ibv_bind_mw");
    next(IBV_WC_SUCCESS, IBV_WC_BIND_MW);
  }
  const uint32_t rkey = mw->rkey;
  pass_key(rkey);
  in_step();
  holds(1024, 41);
  if (type == IBV_MW_TYPE_2) {
    struct ibv_wc wc = next(IBV_WC_SUCCESS, IBV_WC_RECV);
    if (!(wc.wc_flags & IBV_WC_WITH_INV) || wc.invalidated_rkey != rkey) fail("nothing was invalidated");
  } else {
    done(ibv_bind_mw(qp, mw, &unbind), "ibv_bind_mw");
    next(IBV_WC_SUCCESS, IBV_WC_BIND_MW);
  }
  in_step();
  in_step();
  holds(1024, 41);
  done(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
}

static void xrc_requests(struct ibv_qp *qp) {
  struct ibv_sge piece;
  struct ibv_send_wr wr = request(IBV_WR_SEND, 51, 0, &piece);
  ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_SEND);
  wr = request(IBV_WR_SEND_WITH_IMM, 52, 0, &piece);
  wr.imm_data = 7;
  wr.send_flags = IBV_SEND_INLINE;
  ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_SEND);
  wr = request(IBV_WR_RDMA_WRITE, 53, 1024, &piece);
  ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
  wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, 54, 1088, &piece);
  ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
  wr = request(IBV_WR_RDMA_READ, 0, 1024, &piece);
  ask(qp, &wr, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
  holds(0, 53);
  const uint64_t word = 0x3535353535353535ull;
  for (unsigned swaps = 0; swaps < 2; swaps++) {
    wr = request(swaps ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, &piece);
    piece.length = 8;
    wr.wr.atomic.remote_addr = theirs.address + 1024;
    wr.wr.atomic.rkey = theirs.rkey;
    wr.wr.atomic.compare_add = swaps ? word + 1 : 1;
    wr.wr.atomic.swap = word;
    ask(qp, &wr, IBV_WC_SUCCESS, swaps ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD);
    if (*(volatile uint64_t *)memory != word + swaps) fail("an atomic found something else");
  }
}

static void xrc(void) {
  struct ibv_xrcd_init_attr domain = {.fd = -1, .oflags = O_CREAT,
    .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS};
  struct ibv_xrcd *xrcd = have(ibv_open_xrcd(context, &domain), "ibv_open_xrcd");
  struct ibv_srq_init_attr_ex shared = {.attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_XRC,
    .pd = pd, .xrcd = xrcd, .cq = cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
      IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};
  struct ibv_srq *queue = have(ibv_create_srq_ex(context, &shared), "ibv_create_srq_ex");
  uint32_t number;
  done(ibv_get_srq_num(queue, &number), "ibv_get_srq_num");
  struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD,
                                     .xrcd = xrcd};
  if (asks)
    init = (struct ibv_qp_init_attr_ex){.qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD,
      .pd = pd, .send_cq = cq, .sq_sig_all = 1,
      .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = LENGTH}};
  for (unsigned i = 0; i < 3; i++) receive(queue, i * LENGTH);
  struct ibv_qp *qp = connected(ibv_create_qp_ex(context, &init), number);
  if (asks) {
    xrc_requests(qp);
    in_step();
  } else {
    in_step();
    next(IBV_WC_SUCCESS, IBV_WC_RECV);
    if (next(IBV_WC_SUCCESS, IBV_WC_RECV).imm_data != 7) fail("another immediate");
    next(IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
    holds(0, 51), holds(LENGTH, 52), holds(1024, 53), holds(1088, 54);
  }
  done(ibv_destroy_qp(qp), "ibv_destroy_qp");
  done(ibv_destroy_srq(queue), "ibv_destroy_srq");
  done(ibv_close_xrcd(xrcd), "ibv_close_xrcd");
}

int main(int argc, char **argv) {
  const char *device = NULL;
  for (int option; (option = getopt(argc, argv, "d:g:")) != -1;)
    if (option == 'd') device = optarg;
    else if (option == 'g') gid_index = atoi(optarg);
    else return 2;
  asks = optind < argc;
  peer = meet(argv[optind], PORT);
  context = open_device(device);
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  channel = have(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  cq = have(ibv_create_cq(context, 64, NULL, channel, 0), "ibv_create_cq");
  struct ibv_srq_init_attr shared = {.attr = {.max_wr = 16, .max_sge = 1}};
  srq = have(ibv_create_srq(pd, &shared), "ibv_create_srq");
  mr = have(ibv_reg_mr(pd, memory, BYTES, RIGHTS), "ibv_reg_mr");
  mine.rkey = mr->rkey;
  mine.address = (uintptr_t)memory;
  done(ibv_query_gid(context, 1, gid_index, &mine.gid), "ibv_query_gid");

  struct ibv_qp *qp = connected_rc();
  shared_queue(qp);
  well("a shared queue, its limit, solicited events");
  window(qp, IBV_MW_TYPE_2);
  well("a window of type 2, invalidated by its user");
  done(ibv_destroy_qp(qp), "ibv_destroy_qp");
  qp = connected_rc();
  window(qp, IBV_MW_TYPE_1);
  well("a window of type 1, closed by its owner");
  done(ibv_destroy_qp(qp), "ibv_destroy_qp");
  memset(memory, 0, BYTES);
  xrc();
  well("every operation of XRC");
  return 0;
}
