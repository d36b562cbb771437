// process_churn: child processes that open a device, use ten queue pairs each, and end; the parent stays.
//
//   process_churn [-d DEVICE] [-g GID_INDEX] COUNT
//
// A third of the children destroy their objects, a third exit, a third are killed. Prints what the parent and
// rockery's agent hold after the first children and after the last one: the two must be the same.

#include "meeting.h"
#include "holdings.h"

#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define QPS 10
#define AT_ONCE 8                // children at a time
#define WARM 64                  // children before the first count
#define TIMEOUT_MS 20000
#define SETTLE_MS 10000          // for what is closed a moment later
// Sockets that a device makes once, when it sends its first packet: for instance an acknowledgement.
#define PACKET_SOCKETS 32
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct card { uint32_t qpn[QPS], rkey; uint64_t words; union ibv_gid gid; };

static const char *device_name;
static int gid_index = 1;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint64_t words[QPS];

static void open_device(void) {
  struct ibv_device **list = have(ibv_get_device_list(NULL), "devices"), *device = NULL;
  for (int i = 0; list[i]; i++)
    if (!device_name || !strcmp(device_name, ibv_get_device_name(list[i]))) device = list[i];
  context = have(ibv_open_device(have(device, "the device")), "ibv_open_device");
  ibv_free_device_list(list);
  pd = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  cq = have(ibv_create_cq(context, 64, NULL, NULL, 0), "ibv_create_cq");
  mr = have(ibv_reg_mr(pd, words, sizeof words, RIGHTS), "ibv_reg_mr");
}

static void make_queue_pairs(struct ibv_qp **qps, struct card *mine) {
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
    .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
  for (int i = 0; i < QPS; i++) {
    qps[i] = have(ibv_create_qp(pd, &init), "ibv_create_qp");
    mine->qpn[i] = qps[i]->qp_num;
  }
  done(ibv_query_gid(context, 1, gid_index, &mine->gid), "ibv_query_gid");
  mine->rkey = mr->rkey;
  mine->words = (uintptr_t)words;
}

static void join(struct ibv_qp *qp, const struct card *peer, int index) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
  const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  done(ibv_modify_qp(qp, &attr, init), "INIT");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
    .dest_qp_num = peer->qpn[index], .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
    .ah_attr = {.is_global = 1, .port_num = 1,
                .grh = {.dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64}}};
  const int receive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  done(ibv_modify_qp(qp, &attr, receive), "RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 7, .rnr_retry = 7,
                              .max_rd_atomic = 4};
  const int send = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                   IBV_QP_MAX_QP_RD_ATOMIC;
  done(ibv_modify_qp(qp, &attr, send), "RTS");
}

static void expect(int count) {
  struct ibv_wc wc;
  for (const long end = now_ms() + TIMEOUT_MS; count; ) {
    if (!ibv_poll_cq(cq, 1, &wc)) {
      if (now_ms() > end) fail("no completion");
      continue;
    }
    if (wc.status) fail("%s", ibv_wc_status_str(wc.status));
    count--;
  }
}

// A WRITE of eight bytes by each queue pair, with a word that says that it is there.
static void write_all(struct ibv_qp **qps, const struct card *peer) {
  for (int i = 0; i < QPS; i++) {
    words[i] = 0x1000 + i;
    struct ibv_sge piece = {(uintptr_t)&words[i], sizeof *words, mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
    wr.wr.rdma.remote_addr = peer->words + i * sizeof *words;
    wr.wr.rdma.rkey = peer->rkey;
    done(ibv_post_send(qps[i], &wr, &bad), "ibv_post_send");
  }
}

static void use_and_end(int host, int number) {
  struct ibv_qp *qps[QPS];
  struct card mine, theirs;
  char token = 0;
  open_device();
  make_queue_pairs(qps, &mine);
  exchange(host, &mine, &theirs, sizeof mine);
  for (int i = 0; i < QPS; i++) join(qps[i], &theirs, i);
  exchange(host, &token, &token, 1);
  write_all(qps, &theirs);
  expect(QPS);
  exchange(host, &token, &token, 1);
  if (number % 3 == 1) exit(0);
  if (number % 3 == 2) raise(SIGKILL);
  for (int i = 0; i < QPS; i++) done(ibv_destroy_qp(qps[i]), "ibv_destroy_qp");
  done(ibv_dereg_mr(mr), "ibv_dereg_mr");
  done(ibv_destroy_cq(cq), "ibv_destroy_cq");
  done(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  done(ibv_close_device(context), "ibv_close_device");
  exit(0);
}

static void receive(int child) {
  struct ibv_qp *qps[QPS];
  struct card mine, theirs;
  char token = 0;
  make_queue_pairs(qps, &mine);
  memset(words, 0, sizeof words);
  exchange(child, &mine, &theirs, sizeof mine);
  for (int i = 0; i < QPS; i++) {
    join(qps[i], &theirs, i);
    struct ibv_recv_wr *bad, wr = {0};
    done(ibv_post_recv(qps[i], &wr, &bad), "ibv_post_recv");
  }
  exchange(child, &token, &token, 1);
  expect(QPS);
  for (int i = 0; i < QPS; i++)
    if (words[i] != 0x1000u + i) fail("word %d is %llx", i, (unsigned long long)words[i]);
  exchange(child, &token, &token, 1);
  for (int i = 0; i < QPS; i++) done(ibv_destroy_qp(qps[i]), "ibv_destroy_qp");
}

// Starts one child after another, a few at a time. Before any device is open, so that none is inherited.
static void start_children(int *ends, int number) {
  int failed = 0, running = 0, status;
  for (int i = 0; i < number || running; ) {
    if (i < number && running < AT_ONCE) {
      pid_t child = fork();
      if (child < 0) fail("fork: %s", strerror(errno));
      if (!child) {
        int pair[2];
        char byte = 0;
        struct iovec piece = {&byte, 1};
        union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control,
                                 .msg_controllen = sizeof control.room};
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) fail("socketpair: %s", strerror(errno));
        control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &pair[1], sizeof(int));
        if (sendmsg(ends[1], &message, 0) != 1) fail("sendmsg: %s", strerror(errno));
        close(pair[1]);
        use_and_end(pair[0], i);
      }
      running++, i++;
      continue;
    }
    if (wait(&status) < 0) fail("wait: %s", strerror(errno));
    running--;
    if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) failed = 1;
  }
  exit(failed);
}

static int next_child(int end) {
  char byte;
  struct iovec piece = {&byte, 1};
  union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = sizeof control.room};
  if (recvmsg(end, &message, 0) != 1) fail("no child connects");
  int child;
  memcpy(&child, CMSG_DATA(&control.header), sizeof child);
  return child;
}

int main(int argc, char **argv) {
  for (int option; (option = getopt(argc, argv, "d:g:")) != -1; )
    if (option == 'd') device_name = optarg;
    else if (option == 'g') gid_index = atoi(optarg);
    else return 2;
  const int number = optind < argc ? atoi(argv[optind]) : 0;
  if (number <= WARM) fail("more than %d children are needed", WARM);
  int ends[2], status = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) fail("socketpair: %s", strerror(errno));
  pid_t sender = fork();
  if (!sender) start_children(ends, number);
  close(ends[1]);
  open_device();
  struct holdings before = {0}, after;
  for (int i = 0; i < number; i++) {
    int child = next_child(ends[0]);
    receive(child);
    close(child);
    if (i == WARM) before = look();
  }
  if (waitpid(sender, &status, 0) != sender || status) fail("a child failed");
  close(ends[0]);
  for (const long end = now_ms() + SETTLE_MS; ; sleep_ms(20)) {
    after = look();
    if (now_ms() > end || (after.names <= before.names && after.mappings <= before.mappings)) break;
  }
  print_holdings("after the first", before);
  print_holdings("after the last", after);
  // The agent keeps a socket for each device that was ever open at the same time.
  if (after.descriptors > before.descriptors + PACKET_SOCKETS || after.mappings > before.mappings ||
      after.names > before.names || after.agent_descriptors > before.agent_descriptors + AT_ONCE ||
      after.agent_kib > before.agent_kib + 64)
    fail("something is left");
  printf("%d processes left nothing\n", number);
  return 0;
}
