// resources LIMIT: lowers a limit of the process (setrlimit(2)) before each step of using a device, one step
// in each process. The step succeeds or fails with an error number, and a step that failed succeeds when the
// limit is raised again. A signal, a hang, or an error without a number fails the probe. Each failure is a
// line.
#include "device.h"

#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { LENGTH = 4 << 20, SECONDS = 60, UNPRIVILEGED = 65534 };

static const struct {
  const char *name;
  int limit;
} limits[] = {{"NOFILE", RLIMIT_NOFILE}, {"MEMLOCK", RLIMIT_MEMLOCK}, {"AS", RLIMIT_AS},
              {"FSIZE", RLIMIT_FSIZE}, {"NPROC", RLIMIT_NPROC}, {"STACK", RLIMIT_STACK},
              {"DATA", RLIMIT_DATA}};

static struct ibv_device **list;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct ibv_qp *qp[2];
static char *memory;
static union ibv_gid gid;
static struct rdma_event_channel *events;
static struct rdma_cm_id *listener, *client, *server;
static struct sockaddr_in address;

// A step returns 0, or an error number. It may be repeated after an error.
static int made(void *thing) { return thing ? 0 : errno ? errno : -1; }
static int called(int code) { return code ? errno : 0; }

static int step_list(void) { return made(list = ibv_get_device_list(NULL)); }
static int step_open(void) {
  for (int i = 0; list[i] && !context; i++)
    if (!strcmp("rk_lo", ibv_get_device_name(list[i]))) context = ibv_open_device(list[i]);
  return made(context);
}
static int step_pd(void) { return made(pd = ibv_alloc_pd(context)); }
static int step_channel(void) { return made(channel = ibv_create_comp_channel(context)); }
static int step_cq(void) { return made(cq = ibv_create_cq(context, 1000, NULL, channel, 0)); }
static int step_srq(void) {
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1000, .max_sge = 4}};
  return made(srq = ibv_create_srq(pd, &attr));
}
static int step_mr(void) {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return made(mr = ibv_reg_mr(pd, memory, LENGTH, access));
}
static int step_qp(void) {
  struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {100, 100, 4, 4, 64},
                                  .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  for (int i = 0; i < 2; i++)
    if (!qp[i] && !(qp[i] = ibv_create_qp(pd, &attr))) return made(NULL);
  return 0;
}
static int to_reset(struct ibv_qp *which) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
  return ibv_modify_qp(which, &attr, IBV_QP_STATE);
}
static int connect_to(struct ibv_qp *which, struct ibv_qp *other) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 7};
  int code = to_reset(which);
  if (!code)
    code = ibv_modify_qp(which, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp_num,
                              .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1, .port_num = 1,
                                          .grh = {.dgid = gid, .sgid_index = 1}}};
  if (!code)
    code = ibv_modify_qp(which, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                              .max_rd_atomic = 1};
  if (!code)
    code = ibv_modify_qp(which, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return code;
}
static int step_connect(void) {
  int code = ibv_query_gid(context, 1, 1, &gid);
  for (int i = 0; i < 2 && !code; i++) code = connect_to(qp[i], qp[!i]);
  return code;
}
// Half of the memory goes to the other half. It is no error of the call if the request fails.
static int step_write(void) {
  struct ibv_sge sge = {(uintptr_t)memory, LENGTH / 2, mr->lkey};
  struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1}, *bad;
  wr.wr.rdma.remote_addr = (uintptr_t)memory + LENGTH / 2;
  wr.wr.rdma.rkey = mr->rkey;
  int code = ibv_post_send(qp[0], &wr, &bad), found = 0;
  struct ibv_wc wc;
  while (!code && !(found = ibv_poll_cq(cq, 1, &wc))) ;
  return code ? code : found < 0 ? -1 : wc.status ? EIO : 0;
}
static int step_ah(void) {
  struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1}};
  return made(ibv_create_ah(pd, &attr));
}
static int step_events(void) { return made(events = rdma_create_event_channel()); }
static int step_listener(void) { return called(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP)); }
static int step_bind(void) {
  address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int code = called(rdma_bind_addr(listener, (struct sockaddr *)&address));
  address.sin_port = rdma_get_src_port(listener);
  return code;
}
static int step_listen(void) { return called(rdma_listen(listener, 4)); }
static int take(enum rdma_cm_event_type wanted, struct rdma_cm_id **id) {
  struct rdma_cm_event *event;
  if (rdma_get_cm_event(events, &event)) return errno;
  int is_wanted = event->event == wanted && !event->status;
  if (is_wanted && id) *id = event->id;
  int status = event->status < 0 ? -event->status : EPROTO;
  rdma_ack_cm_event(event);
  return is_wanted ? 0 : status;
}
static int step_client(void) { return called(rdma_create_id(events, &client, NULL, RDMA_PS_TCP)); }
static int step_resolve(void) {
  int code = called(rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, 2000));
  return code ? code : take(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
}
static int step_route(void) {
  int code = called(rdma_resolve_route(client, 2000));
  return code ? code : take(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
}
static int endpoint(struct rdma_cm_id *id) {
  struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  return called(rdma_create_qp(id, NULL, &attr));
}
static int step_client_qp(void) { return endpoint(client); }
static int step_request(void) {
  struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 3};
  return called(rdma_connect(client, &param));
}
static int step_requested(void) { return take(RDMA_CM_EVENT_CONNECT_REQUEST, &server); }
static int step_server_qp(void) { return endpoint(server); }
static int step_accept(void) {
  struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
  return called(rdma_accept(server, &param));
}

static const struct {
  const char *name;
  int (*run)(void);
} steps[] = {
    {"ibv_get_device_list", step_list}, {"ibv_open_device", step_open}, {"ibv_alloc_pd", step_pd},
    {"ibv_create_comp_channel", step_channel}, {"ibv_create_cq", step_cq}, {"ibv_create_srq", step_srq},
    {"ibv_reg_mr", step_mr}, {"ibv_create_qp", step_qp}, {"ibv_modify_qp", step_connect},
    {"a WRITE", step_write}, {"ibv_create_ah", step_ah}, {"rdma_create_event_channel", step_events},
    {"rdma_create_id", step_listener}, {"rdma_bind_addr", step_bind}, {"rdma_listen", step_listen},
    {"rdma_create_id again", step_client}, {"rdma_resolve_addr", step_resolve},
    {"rdma_resolve_route", step_route}, {"rdma_create_qp", step_client_qp},
    {"rdma_connect", step_request}, {"rdma_get_cm_event", step_requested},
    {"rdma_create_qp again", step_server_qp}, {"rdma_accept", step_accept}};
enum { STEPS = sizeof steps / sizeof *steps };

// How much address space there is beside what is in use.
static const rlim_t spare[] = {0, 512 << 10, 2 << 20, 6 << 20, 20 << 20, 80 << 20};
enum { SPARES = sizeof spare / sizeof *spare };

static rlim_t in_use(int limit) {
  if (limit == RLIMIT_NOFILE) {
    int next = dup(0);
    close(next);
    return next;
  }
  long pages = 0;
  FILE *file = limit == RLIMIT_AS ? fopen("/proc/self/statm", "r") : NULL;
  if (file && fscanf(file, "%ld", &pages) != 1) fail("/proc/self/statm");
  if (file) fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

// All steps, one of them with the limit at what is in use, and so much more.
static int run(int limit, int low, rlim_t more) {
  struct rlimit usual, lowered;
  if (limit == RLIMIT_NPROC && !getuid() && setuid(UNPRIVILEGED)) return 3;
  done(getrlimit(limit, &usual), "getrlimit");
  memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < STEPS; i++) {
    errno = 0;
    if (i == low) {
      lowered = (struct rlimit){in_use(limit) + more, usual.rlim_max};
      done(setrlimit(limit, &lowered), "setrlimit");
    }
    int code = steps[i].run();
    if (i == low) {
      done(setrlimit(limit, &usual), "setrlimit");
      if (code < 0) return 4;
      if (!code) continue;
      code = steps[i].run();
    }
    if (code) {
      printf("  %s: %s\n", steps[i].name, strerror(code));
      fflush(stdout);
      return 5;
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  int wrong = 0;
  for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++)
    for (int turn = 0; turn < (STEPS + 1) * SPARES && argc == 2 && !strcmp(argv[1], limits[i].name); turn++) {
      int low = turn / SPARES - 1;
      rlim_t more = spare[turn % SPARES];
      if (more && limits[i].limit != RLIMIT_AS) continue;
      fflush(stdout);
      pid_t child = fork();
      if (!child) {
        alarm(SECONDS);
        _exit(run(limits[i].limit, low, more));
      }
      int status;
      if (waitpid(child, &status, 0) != child) fail("waitpid");
      if (!status) continue;
      wrong = 1;
      printf("%s low at %s, %lu more: %s %d\n", limits[i].name, low < 0 ? "none" : steps[low].name, more,
             WIFSIGNALED(status) ? "signal" : "exit",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
  puts(wrong ? "wrong" : "right");
  return wrong;
}
