// calls CASE: what verbs return for one call, with two queue pairs of one process. Prints "right" if all is
// as the manual pages say, otherwise a line for each difference.
#include "device.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FIRST_PSN 0x1234
#define GIDS 16

static int wrong;

#define EXPECT(what, ...)               \
  do {                                  \
    if (!(what)) {                      \
      wrong++;                          \
      printf("%s: ", #what);            \
      printf(__VA_ARGS__);              \
      putchar('\n');                    \
    }                                   \
  } while (0)

// One end: a device with a queue of completions and memory that the other end writes.
struct end {
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_cq *cq;
  struct ibv_mr *mr;
  char memory[4096];
  union ibv_gid gid;
  int gid_index;
};

static int is_v4(const union ibv_gid *gid) {
  return !memcmp(gid->raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
}

static void open_end(struct end *end) {
  end->context = open_device(NULL);
  for (end->gid_index = 0; end->gid_index < GIDS; end->gid_index++)
    if (!ibv_query_gid(end->context, 1, end->gid_index, &end->gid) && is_v4(&end->gid)) break;
  end->pd = have(ibv_alloc_pd(end->context), "ibv_alloc_pd");
  end->cq = have(ibv_create_cq(end->context, 64, NULL, NULL, 0), "ibv_create_cq");
  end->mr = have(ibv_reg_mr(end->pd, end->memory, sizeof end->memory,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), "ibv_reg_mr");
}

static struct ibv_qp *queue_pair(struct end *end) {
  struct ibv_qp_init_attr_ex init = {
      .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .pd = end->pd, .sq_sig_all = 1,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW,
      .cap = {8, 8, 2, 2, 64}};
  return have(ibv_create_qp_ex(end->context, &init), "ibv_create_qp_ex");
}

static void to_init(struct ibv_qp *qp) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(qp, &attr, mask), "INIT");
}

static int to_rtr(struct ibv_qp *qp, int gid_index, const union ibv_gid *to, uint32_t number, int hop_limit) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .rq_psn = FIRST_PSN,
      .max_dest_rd_atomic = 1, .min_rnr_timer = 14,
      .ah_attr = {.is_global = 1, .port_num = 1,
                  .grh = {.dgid = *to, .sgid_index = gid_index, .hop_limit = hop_limit}}};
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(qp, &attr, mask);
}

static void to_rts(struct ibv_qp *qp) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = FIRST_PSN, .timeout = 14, .retry_cnt = 7,
                             .rnr_retry = 7, .max_rd_atomic = 1};
  done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static struct end a, b;

static void connect_ends(struct ibv_qp **p, struct ibv_qp **q) {
  open_end(&a);
  open_end(&b);
  *p = queue_pair(&a);
  *q = queue_pair(&b);
  to_init(*p);
  to_init(*q);
  done(to_rtr(*p, a.gid_index, &b.gid, (*q)->qp_num, 1), "RTR");
  done(to_rtr(*q, b.gid_index, &a.gid, (*p)->qp_num, 1), "RTR");
  to_rts(*p);
  to_rts(*q);
}

// The number of completions that come within the time.
static int completions(struct ibv_cq *cq, int most, int ms) {
  struct ibv_wc wc;
  int count = 0;
  for (long end = now_ms() + ms; count < most && now_ms() < end; sleep_ms(1))
    while (ibv_poll_cq(cq, 1, &wc)) {
      EXPECT(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
      count++;
    }
  return count;
}

// Posts a batch of WRITEs of one byte each, the last of which has this many bytes inline, or elements.
static int post_batch(struct ibv_qp_ex *qp, int count, size_t inline_bytes, int elements) {
  struct ibv_sge sges[3] = {{0}};
  char data[65] = "";
  ibv_wr_start(qp);
  for (int i = 0; i < count; i++) {
    int is_last = i == count - 1;
    a.memory[i] = 'a' + i;
    qp->wr_id = i;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.memory + i);
    if (is_last && inline_bytes) ibv_wr_set_inline_data(qp, data, inline_bytes);
    else if (is_last && elements) ibv_wr_set_sge_list(qp, elements, sges);
    else ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.memory + i, 1);
  }
  return ibv_wr_complete(qp);
}

// A batch of which one request cannot be posted executes nothing (ibv_wr_post(3)).
static void batch(void) {
  struct ibv_qp *p, *q;
  connect_ends(&p, &q);
  struct ibv_qp_ex *qp = have(ibv_qp_to_qp_ex(p), "ibv_qp_to_qp_ex");
  struct { int count; size_t inline_bytes; int elements; int error; } refused[] = {
      {9, 0, 0, ENOMEM}, {12, 0, 0, ENOMEM}, {4, 65, 0, EINVAL}, {4, 0, 3, EINVAL}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    int error = post_batch(qp, refused[i].count, refused[i].inline_bytes, refused[i].elements);
    EXPECT(error == refused[i].error, "%d, batch %zu", error, i);
    int count = completions(a.cq, 1, 100);
    EXPECT(count == 0 && !b.memory[0], "%d of batch %zu", count, i);
  }
  // A window keeps its key when the batch that binds it is refused.
  struct ibv_mw *mw = have(ibv_alloc_mw(a.pd, IBV_MW_TYPE_2), "ibv_alloc_mw");
  uint32_t key = mw->rkey;
  struct ibv_mw_bind_info info = {.mr = a.mr, .addr = (uintptr_t)a.memory, .length = 16};
  ibv_wr_start(qp);
  ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(key), &info);
  ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.memory);
  ibv_wr_set_sge_list(qp, 3, (struct ibv_sge[3]){{0}});
  int error = ibv_wr_complete(qp);
  EXPECT(error == EINVAL && mw->rkey == key, "%d", error);
  // As many as fit are all executed.
  error = post_batch(qp, 8, 0, 0);
  int count = completions(a.cq, 8, 5000);
  EXPECT(!error && count == 8 && !memcmp(b.memory, "abcdefgh", 8), "%d, %d completions", error, count);
}

// An event of the device, or -1.
static int event(struct ibv_context *context) {
  struct pollfd readable = {context->async_fd, POLLIN, 0};
  struct ibv_async_event found;
  if (poll(&readable, 1, 200) != 1 || ibv_get_async_event(context, &found)) return -1;
  ibv_ack_async_event(&found);
  return found.event_type;
}

// The PSN that a queue pair expects is the current one. (WRITEs that the requester executes itself, in memory
// that both ends map, reach no responder, which learns their PSNs with the next packet.)
static void query_peer(void) {
  struct ibv_qp *p, *q;
  struct ibv_qp_attr got;
  struct ibv_qp_init_attr init;
  connect_ends(&p, &q);
  struct ibv_qp_ex *qp = have(ibv_qp_to_qp_ex(p), "ibv_qp_to_qp_ex");
  done(post_batch(qp, 5, 0, 0), "WRITEs");
  EXPECT(completions(a.cq, 5, 5000) == 5, "of 5 WRITEs");
  done(ibv_query_qp(q, &got, IBV_QP_RQ_PSN, &init), "ibv_query_qp");
  EXPECT(got.rq_psn == FIRST_PSN + 5 && got.sq_psn == FIRST_PSN, "%#x %#x", got.rq_psn, got.sq_psn);
}

// PSNs are the current ones, and SQD is drained once for each request of the event (IBTA 11.2.5.2).
static void query(void) {
  struct ibv_qp *p, *q;
  struct ibv_qp_attr got, set = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1, .timeout = 15};
  struct ibv_qp_init_attr init;
  connect_ends(&p, &q);
  struct ibv_qp_ex *qp = have(ibv_qp_to_qp_ex(p), "ibv_qp_to_qp_ex");
  for (int i = 0; i < 5; i++) {
    done(post_batch(qp, 1, 0, 0), "WRITE");
    EXPECT(completions(a.cq, 1, 5000) == 1, "WRITE %d", i);
  }
  done(ibv_query_qp(p, &got, IBV_QP_SQ_PSN, &init), "ibv_query_qp");
  EXPECT(got.sq_psn == FIRST_PSN + 5 && got.rq_psn == FIRST_PSN, "%#x %#x", got.sq_psn, got.rq_psn);
  EXPECT(got.ah_attr.grh.hop_limit > 1, "%d", got.ah_attr.grh.hop_limit);

  done(ibv_modify_qp(p, &set, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), "SQD");
  int first = event(a.context);
  done(ibv_modify_qp(p, &set, IBV_QP_STATE | IBV_QP_TIMEOUT), "SQD to SQD");
  int second = event(a.context);
  EXPECT(first == IBV_EVENT_SQ_DRAINED && second == -1, "%d %d", first, second);
  set.qp_state = IBV_QPS_RTS;
  done(ibv_modify_qp(p, &set, IBV_QP_STATE), "RTS");
  set.qp_state = IBV_QPS_SQD;
  done(ibv_modify_qp(p, &set, IBV_QP_STATE), "SQD without the event");
  int third = event(a.context);
  EXPECT(third == -1, "%d", third);
  set.qp_state = IBV_QPS_RTS;
  done(ibv_modify_qp(p, &set, IBV_QP_STATE), "RTS");

  // The peer has posted no receive, so that the SEND waits.
  struct ibv_sge sge = {(uintptr_t)a.memory, 16, a.mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  done(ibv_post_send(p, &wr, &bad), "ibv_post_send");
  sleep_ms(30);
  set.qp_state = IBV_QPS_SQD;
  done(ibv_modify_qp(p, &set, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), "SQD");
  done(ibv_query_qp(p, &got, IBV_QP_STATE, &init), "ibv_query_qp");
  EXPECT(got.qp_state == IBV_QPS_SQD && got.sq_draining == 1, "state %d, %d", got.qp_state, got.sq_draining);
}

// An address without a route is refused by the call that names it.
static void unreachable(void) {
  open_end(&a);
  union ibv_gid far = a.gid, none = {{0}}, v6;
  memcpy(far.raw + 12, "\xc6\x33\x64\x09", 4);  // 198.51.100.9 (RFC 5737)
  struct ibv_qp *qp = queue_pair(&a);
  to_init(qp);
  int error = to_rtr(qp, a.gid_index, &far, 5, 64);
  EXPECT(error == ENETUNREACH || error == EINVAL, "%d", error);
  error = to_rtr(qp, a.gid_index, &none, 5, 64);
  EXPECT(error == EINVAL, "%d", error);
  for (int i = 0; i < GIDS; i++)
    if (!ibv_query_gid(a.context, 1, i, &v6) && !is_v4(&v6) && (v6.raw[0] || v6.raw[15])) {
      error = to_rtr(qp, i, &a.gid, 5, 64);
      EXPECT(error == EINVAL, "%d, GID %d", error, i);
    }
  struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = far, .sgid_index = a.gid_index}};
  errno = 0;
  struct ibv_ah *ah = ibv_create_ah(a.pd, &attr);
  EXPECT(!ah && (errno == ENETUNREACH || errno == EINVAL), "%d", errno);
  done(to_rtr(qp, a.gid_index, &a.gid, qp->qp_num, 64), "RTR to the own address");
}

// A systemd unit whose RestrictAddressFamilies= lacks AF_NETLINK answers EAFNOSUPPORT.
static void without_netlink(void) {
  struct sock_filter refuse[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof refuse / sizeof *refuse, refuse};
  done(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
  done(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "seccomp");
  EXPECT(socket(AF_NETLINK, SOCK_RAW, 0) < 0 && errno == EAFNOSUPPORT, "%d", errno);
  batch();
}

int main(int argc, char **argv) {
  struct { const char *name; void (*run)(void); } cases[] = {
      {"batch", batch}, {"query", query}, {"query-peer", query_peer},
       {"unreachable", unreachable}, {"without-netlink", without_netlink}};
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(argv[1], cases[i].name)) {
      cases[i].run();
      puts(wrong ? "wrong" : "right");
      return wrong != 0;
    }
  fail("name a case");
}
