/* The device is closed before its objects are destroyed, as pyverbs does when a constructor fails: the
 * context has to stay valid until the last object is destroyed. Run with MALLOC_PERTURB_, which overwrites
 * memory that is freed too early. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST(what) \
	do { \
		if (!(what)) { \
			printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); \
			exit(1); \
		} \
	} while (0)

static char memory[4096];

static struct ibv_context *opened(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	MUST(context);
	return context;
}

static void everything(void)
{
	struct ibv_context *context = opened();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_td_init_attr nothing = {0};
	struct ibv_td *td = ibv_alloc_td(context, &nothing);
	struct ibv_parent_domain_init_attr above = {.pd = pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &above);
	struct ibv_alloc_dm_attr bytes = {.length = 64};
	struct ibv_dm *dm = ibv_alloc_dm(context, &bytes);
	struct ibv_xrcd_init_attr xrc = {.comp_mask = 3, .fd = -1, .oflags = 0100};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &xrc);
	union ibv_gid gid;
	MUST(!ibv_query_gid(context, 1, 1, &gid));
	struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1}};
	struct ibv_ah *ah = ibv_create_ah(pd, &way);
	MUST(pd && channel && cq && mr && mw && srq && qp && td && parent && dm && xrcd && ah);

	MUST(!ibv_close_device(context));
	struct ibv_wc completion;
	MUST(ibv_poll_cq(cq, 1, &completion) == 0 && !ibv_req_notify_cq(cq, 0));
	struct ibv_qp_attr asked;
	MUST(!ibv_query_qp(qp, &asked, IBV_QP_STATE, &attr) && asked.qp_state == IBV_QPS_RESET);
	MUST(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_dealloc_mw(mw));
	MUST(!ibv_dereg_mr(mr) && !ibv_free_dm(dm) && !ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
	MUST(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd));
	MUST(!ibv_close_xrcd(xrcd));
}

/* With each object as the last one. */
static void one_each(void)
{
	struct ibv_context *context = opened();
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	MUST(cq && !ibv_close_device(context) && !ibv_destroy_cq(cq));
	context = opened();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	MUST(pd && !ibv_close_device(context) && !ibv_dealloc_pd(pd));
	context = opened();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	MUST(channel && !ibv_close_device(context) && !ibv_destroy_comp_channel(channel));
	context = opened();
	struct ibv_xrcd_init_attr xrc = {.comp_mask = 3, .fd = -1, .oflags = 0100};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &xrc);
	MUST(xrcd && !ibv_close_device(context) && !ibv_close_xrcd(xrcd));
}

/* The state that programs read from the queue pair changes only where a query asks for it. */
static void a_query_changes_what_it_asks_for(void)
{
	struct ibv_context *context = opened();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	MUST(pd && cq && qp && qp->state == IBV_QPS_RESET);
	struct ibv_qp_attr asked;
	qp->state = IBV_QPS_ERR;
	MUST(!ibv_query_qp(qp, &asked, IBV_QP_CAP, &attr) && qp->state == IBV_QPS_ERR);
	MUST(!ibv_query_qp(qp, &asked, IBV_QP_STATE, &attr) && qp->state == IBV_QPS_RESET);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

/* The lowest free descriptor number: it grows if a descriptor is left open. */
static int lowest_descriptor(void)
{
	int fd = dup(0);
	close(fd);
	return fd;
}

int main(void)
{
	everything();
	int before = lowest_descriptor();
	for (int i = 0; i < 20; i++) {
		everything();
		one_each();
	}
	MUST(lowest_descriptor() == before);
	a_query_changes_what_it_asks_for();
	printf("all gone\n");
	return 0;
}
