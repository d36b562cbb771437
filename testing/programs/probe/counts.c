// counts DEVICE: objects that others use cannot be destroyed (EBUSY), and can be once their users are gone.
// Each case creates an object and one user of it, and is a line: what destroying the object returned with its
// user, what destroying the user did, and the object then. What a device does not offer is named.
#include "device.h"

#include <fcntl.h>

static struct ibv_context *context;
static struct ibv_pd *common;
static struct ibv_cq *cq;
static char memory[4096];

static struct ibv_qp *queue_pair(struct ibv_pd *pd, struct ibv_cq *send, struct ibv_cq *receive,
                                 struct ibv_srq *srq, enum ibv_qp_type type) {
  struct ibv_qp_init_attr attr = {.send_cq = send, .recv_cq = receive, .srq = srq, .cap = {4, 4, 1, 1, 0},
                                  .qp_type = type};
  return ibv_create_qp(pd, &attr);
}

static struct ibv_srq *shared_queue(struct ibv_pd *pd) {
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
  return ibv_create_srq(pd, &attr);
}

static struct ibv_srq *xrc_queue(struct ibv_pd *pd, struct ibv_xrcd *xrcd, struct ibv_cq *of) {
  struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_XRC,
    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                 IBV_SRQ_INIT_ATTR_PD,
    .xrcd = xrcd, .cq = of, .pd = pd};
  return ibv_create_srq_ex(context, &attr);
}

static struct ibv_xrcd *xrc_domain(void) {
  struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
                                    .oflags = O_CREAT};
  return ibv_open_xrcd(context, &attr);
}

static struct ibv_ah *address_handle(struct ibv_pd *pd) {
  struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
  if (ibv_query_gid(context, 1, 1, &attr.grh.dgid)) fail("ibv_query_gid");
  return ibv_create_ah(pd, &attr);
}

static struct ibv_mr *region(struct ibv_pd *pd) { return ibv_reg_mr(pd, memory, sizeof memory, 0); }

// `used` cannot be destroyed while `user` is there.
#define EXPECT_BUSY(what, used, destroy, user, release) do { \
    typeof(used) it = used; \
    typeof(user) of = it ? user : NULL; \
    if (!of) { \
      printf("%s: not offered\n", what); \
      if (it) destroy(it); \
      break; \
    } \
    int busy = destroy(it), released = release(of), then = destroy(it); \
    printf("%s: %s in use, its user %s, afterwards %s\n", what, name(busy), name(released), name(then)); \
  } while (0)

static const char *name(int code) { return code ? strerrorname_np(code) : "0"; }

int main(int argc, char **argv) {
  context = open_device(argc > 1 ? argv[1] : NULL);
  common = have(ibv_alloc_pd(context), "ibv_alloc_pd");
  cq = have(ibv_create_cq(context, 16, NULL, NULL, 0), "ibv_create_cq");
  EXPECT_BUSY("a domain with a region", ibv_alloc_pd(context), ibv_dealloc_pd, region(it), ibv_dereg_mr);
  EXPECT_BUSY("a domain with a null region", ibv_alloc_pd(context), ibv_dealloc_pd, ibv_alloc_null_mr(it),
              ibv_dereg_mr);
  EXPECT_BUSY("a domain with a window", ibv_alloc_pd(context), ibv_dealloc_pd,
              ibv_alloc_mw(it, IBV_MW_TYPE_2), ibv_dealloc_mw);
  EXPECT_BUSY("a domain with an address handle", ibv_alloc_pd(context), ibv_dealloc_pd, address_handle(it),
              ibv_destroy_ah);
  EXPECT_BUSY("a domain with a shared receive queue", ibv_alloc_pd(context), ibv_dealloc_pd, shared_queue(it),
              ibv_destroy_srq);
  EXPECT_BUSY("a domain with a queue pair", ibv_alloc_pd(context), ibv_dealloc_pd,
              queue_pair(it, cq, cq, NULL, IBV_QPT_RC), ibv_destroy_qp);
  struct ibv_parent_domain_init_attr parent = {0};
  EXPECT_BUSY("a domain with a parent domain", ibv_alloc_pd(context), ibv_dealloc_pd,
              (parent.pd = it, ibv_alloc_parent_domain(context, &parent)), ibv_dealloc_pd);
  struct ibv_td_init_attr thread = {0};
  struct ibv_parent_domain_init_attr with_thread = {.pd = common};
  EXPECT_BUSY("a thread domain with a parent domain", ibv_alloc_td(context, &thread), ibv_dealloc_td,
              (with_thread.td = it, ibv_alloc_parent_domain(context, &with_thread)), ibv_dealloc_pd);
  EXPECT_BUSY("a completion queue of sends", ibv_create_cq(context, 4, NULL, NULL, 0), ibv_destroy_cq,
              queue_pair(common, it, cq, NULL, IBV_QPT_RC), ibv_destroy_qp);
  EXPECT_BUSY("a completion queue of receives", ibv_create_cq(context, 4, NULL, NULL, 0), ibv_destroy_cq,
              queue_pair(common, cq, it, NULL, IBV_QPT_UD), ibv_destroy_qp);
  struct ibv_xrcd *domain = xrc_domain();
  EXPECT_BUSY("a completion queue of an XRC queue", ibv_create_cq(context, 4, NULL, NULL, 0), ibv_destroy_cq,
              domain ? xrc_queue(common, domain, it) : NULL, ibv_destroy_srq);
  EXPECT_BUSY("an XRC domain with an XRC queue", xrc_domain(), ibv_close_xrcd, xrc_queue(common, it, cq),
              ibv_destroy_srq);
  EXPECT_BUSY("a completion channel", ibv_create_comp_channel(context), ibv_destroy_comp_channel,
              ibv_create_cq(context, 4, NULL, it, 0), ibv_destroy_cq);
  EXPECT_BUSY("a shared receive queue", shared_queue(common), ibv_destroy_srq,
              queue_pair(common, cq, cq, it, IBV_QPT_RC), ibv_destroy_qp);
  struct ibv_alloc_dm_attr room = {.length = 4096};
  EXPECT_BUSY("device memory", ibv_alloc_dm(context, &room), ibv_free_dm,
              ibv_reg_dm_mr(common, it, 0, 4096, IBV_ACCESS_ZERO_BASED), ibv_dereg_mr);
  if ((domain && ibv_close_xrcd(domain)) || ibv_destroy_cq(cq) || ibv_dealloc_pd(common) ||
      ibv_close_device(context))
    fail("the rest is used still");
  return 0;
}
