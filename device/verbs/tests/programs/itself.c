/* Transfers between queue pairs of one device, for verbs that no program of the distribution covers. Prints
 * one line per step that behaved as the manual pages require, and stops at the first that did not. */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MUST(what) \
	do { \
		if (!(what)) { \
			printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); \
			exit(1); \
		} \
	} while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static char memory[8192] __attribute__((aligned(4096)));

static void connect_to(struct ibv_qp *qp, uint32_t number)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number};
	attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.grh.sgid_index = 1;
	attr.ah_attr.grh.hop_limit = 1;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	attr.max_rd_atomic = 4;
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC));
	MUST(qp->state == IBV_QPS_RTS);
}

static void reach(struct ibv_cq_ex *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_poll_cq_attr attr = {};
	int rc;
	while ((rc = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	MUST(rc == 0);
	if (cq->wr_id != id || cq->status != status)
		printf("id %d status %d instead of %d %d\n", (int)cq->wr_id, cq->status, (int)id, status);
	MUST(cq->wr_id == id && cq->status == status);
}

/* A queue pair connected to itself, with a completion queue of its own. */
static struct ibv_qp *loop(struct ibv_pd *domain, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	init.cap = (struct ibv_qp_cap){16, 16, 2, 2, 0};
	struct ibv_qp *qp = ibv_create_qp(domain, &init);
	MUST(qp);
	connect_to(qp, qp->qp_num);
	return qp;
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t there,
		 uint32_t rkey)
{
	struct ibv_send_wr wr = {.opcode = opcode, .sg_list = sge, .num_sge = 1}, *bad;
	wr.wr.rdma.remote_addr = there;
	wr.wr.rdma.rkey = rkey;
	MUST(!ibv_post_send(qp, &wr, &bad));
}

static void finish(struct ibv_cq *cq, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int rc;
	while ((rc = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	MUST(rc == 1 && wc.status == status);
}

/* Work requests, elements, completions and the pointer to the request that failed, at odd addresses: libiscsi
 * has them in packed structs. */
static void structs_at_odd_addresses(struct ibv_mr *mr)
{
	struct __attribute__((packed)) {
		char odd;
		struct ibv_sge from, to;
		struct ibv_recv_wr receive, *bad_receive;
		struct ibv_send_wr send, *bad_send;
		struct ibv_wc completions[2];
	} all = {
		.from = {(uintptr_t)memory, 16, mr->lkey},
		.to = {(uintptr_t)memory + 4096, 16, mr->lkey},
	};
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = loop(pd, cq);
	/* Through another type, since compilers warn of the address of a packed field. */
	char *base = &all.odd;
	void *from = base + 1, *to = base + 1 + sizeof all.from, *receive = &all.receive, *send = &all.send;
	void *bad_receive = &all.bad_receive, *bad_send = &all.bad_send, *completions = &all.completions;
	all.receive.sg_list = to;
	all.receive.num_sge = 1;
	all.receive.wr_id = 1;
	MUST(!ibv_post_recv(qp, receive, bad_receive));
	strcpy(memory, "at odd address");
	all.send.sg_list = from;
	all.send.num_sge = 1;
	all.send.wr_id = 2;
	all.send.opcode = IBV_WR_SEND;
	MUST(!ibv_post_send(qp, send, bad_send));
	for (int done = 0; done < 2;) {
		int rc = ibv_poll_cq(cq, 1, (struct ibv_wc *)completions + done);
		MUST(rc >= 0);
		done += rc;
	}
	MUST(!all.completions[0].status && !all.completions[1].status);
	MUST(all.completions[0].wr_id + all.completions[1].wr_id == 3);
	MUST(!strcmp(memory + 4096, "at odd address"));
	all.send.num_sge = 100;
	MUST(ibv_post_send(qp, send, bad_send) == EINVAL && all.bad_send == send);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	puts("odd addresses");
}

/* Regions without memory of the program, and imported objects. */
static void regions_of_other_kinds(void)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = loop(pd, cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, all);
	struct ibv_mr *null = ibv_alloc_null_mr(pd);
	MUST(mr && null);
	memset(memory, 'x', 64);
	struct ibv_sge sge = {12345, 64, null->lkey};
	post(qp, IBV_WR_RDMA_READ, &sge, (uintptr_t)memory, mr->rkey);
	finish(cq, IBV_WC_SUCCESS);
	MUST(memory[0] == 'x');
	post(qp, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)memory, mr->rkey);
	finish(cq, IBV_WC_SUCCESS);
	MUST(!memory[0] && !memory[63] && !ibv_dereg_mr(null));
	puts("null region");

	int fd = memfd_create("file", 0);
	MUST(fd >= 0 && !ftruncate(fd, 3 * 4096));
	struct ibv_mr *file = ibv_reg_dmabuf_mr(pd, 4000, 5000, 1 << 20, fd, all);
	MUST(file && !file->addr && file->length == 5000);
	MUST(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 1 << 20, all) && errno == EBADF);
	/* The questions of NCCL and of UCX, whether memory of a GPU can be registered. */
	MUST(!ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) && errno == EOPNOTSUPP);
	MUST(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE) && errno == EOPNOTSUPP);
	strcpy(memory, "into a file");
	sge = (struct ibv_sge){(uintptr_t)memory, 12, mr->lkey};
	post(qp, IBV_WR_RDMA_WRITE, &sge, (1 << 20) + 100, file->rkey);
	finish(cq, IBV_WC_SUCCESS);
	char back[12];
	MUST(pread(fd, back, 12, 4100) == 12 && !strcmp(back, "into a file"));
	MUST(!ibv_dereg_mr(file) && !close(fd));
	puts("region of a file");

	struct ibv_context *other = ibv_import_device(dup(context->cmd_fd));
	MUST(other && !strcmp(ibv_get_device_name(other->device), "rk_lo"));
	MUST(!ibv_import_device(0) && errno == EOPNOTSUPP);
	MUST(!ibv_import_pd(other, 4711) && errno == EINVAL);
	struct ibv_pd *domain = ibv_import_pd(other, pd->handle);
	MUST(domain);
	struct ibv_mr *imported = ibv_import_mr(domain, mr->handle);
	MUST(imported && imported->rkey == mr->rkey && imported->length == mr->length);
	struct ibv_cq *others = ibv_create_cq(other, 16, NULL, NULL, 0);
	struct ibv_qp *import = loop(domain, others);
	sge = (struct ibv_sge){(uintptr_t)memory, 12, imported->lkey};
	post(import, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)memory + 4096, imported->rkey);
	finish(others, IBV_WC_SUCCESS);
	MUST(!strcmp(memory + 4096, "into a file"));
	MUST(!ibv_destroy_qp(import) && !ibv_destroy_cq(others));
	ibv_unimport_mr(imported);
	ibv_unimport_pd(domain);
	MUST(!ibv_close_device(other));
	puts("imported");

	struct ibv_ece ece = {.vendor_id = 1};
	MUST(ibv_query_ece(qp, &ece) == EOPNOTSUPP && !ece.vendor_id);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
}

/* Event moderation: an event is raised after three completions, or after 50 ms. */
static void moderated_events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	struct ibv_modify_cq_attr attr = {IBV_CQ_ATTR_MODERATE, {3, 50000}};
	MUST(!ibv_modify_cq(cq, &attr));
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *qp = loop(pd, cq);
	struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
	struct pollfd events = {.fd = channel->fd, .events = POLLIN};
	for (int count = 3; count >= 1; count -= 2) {
		struct ibv_cq *which;
		void *cookie;
		MUST(!ibv_req_notify_cq(cq, 0));
		for (int i = 0; i < count; i++)
			post(qp, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)memory + 64, mr->rkey);
		MUST(poll(&events, 1, 10000) == 1 && !ibv_get_cq_event(channel, &which, &cookie));
		ibv_ack_cq_events(cq, 1);
		MUST(poll(&events, 1, 0) == 0);
		for (int i = 0; i < count; i++)
			finish(cq, IBV_WC_SUCCESS);
	}
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr));
	puts("moderated events");
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rk_lo"))
			context = ibv_open_device(list[i]);
	MUST(context);
	ibv_free_device_list(list);
	MUST(!ibv_query_gid(context, 1, 1, &gid));
	MUST(ibv_query_gid(context, 1, 16, &gid) == -1 && errno == EINVAL);
	union ibv_gid none;
	MUST(!ibv_query_gid(context, 1, 15, &none) && !none.global.subnet_prefix && !none.global.interface_id);
	struct ibv_gid_entry entry, table[16];
	MUST(ibv_query_gid_ex(context, 1, 15, &entry, 0) == ENODATA);
	MUST(ibv_query_gid_table(context, table, 16, 0) >= 2 && !memcmp(&table[1].gid, &gid, sizeof gid));
	MUST(ibv_query_gid_table(context, table, 1, 0) == -EINVAL);
	puts("gids");

	pd = ibv_alloc_pd(context);
	MUST(pd);
	MUST(!ibv_reg_mr(pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND |
					       IBV_ACCESS_RELAXED_ORDERING);
	MUST(mr);
	MUST(ibv_dealloc_pd(pd) == EBUSY);
	puts("memory");

	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	MUST(channel);
	MUST(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
	MUST(!ibv_create_cq(context, 16, NULL, NULL, 99) && errno == EINVAL);
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 64, .cq_context = &gid, .channel = channel};
	cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &cq_attr);
	MUST(cq);
	MUST(ibv_destroy_comp_channel(channel) == EBUSY);

	struct ibv_qp_init_attr_ex init = {.send_cq = (void *)cq, .recv_cq = (void *)cq, .qp_type = IBV_QPT_RC};
	init.cap = (struct ibv_qp_cap){16, 16, 2, 2, 64};
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.pd = pd;
	init.send_ops_flags = IBV_QP_EX_WITH_TSO;
	MUST(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
			      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
			      IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	MUST(qp && init.cap.max_inline_data >= 64);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	MUST(ex);
	struct ibv_qp_init_attr plain = {.send_cq = (void *)cq, .recv_cq = (void *)cq, .qp_type = IBV_QPT_RC};
	plain.cap = init.cap;
	struct ibv_qp *peer = ibv_create_qp(pd, &plain);
	MUST(peer && !ibv_qp_to_qp_ex(peer));
	struct ibv_sge sge = {(uintptr_t)memory + 4096, 64, mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad_receive;
	MUST(ibv_post_recv(peer, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
	connect_to(qp, peer->qp_num);
	connect_to(peer, qp->qp_num);
	puts("queue pairs");

	MUST(!ibv_post_recv(peer, &receive, &bad_receive));
	MUST(!ibv_req_notify_cq((void *)cq, 0));
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = 0;
	ibv_wr_send_imm(ex, htobe32(0x12345678));
	ibv_wr_set_inline_data(ex, "inline", 7);
	MUST(!ibv_wr_complete(ex));
	struct ibv_cq *which;
	void *cookie;
	MUST(!ibv_get_cq_event(channel, &which, &cookie) && (void *)which == (void *)cq && cookie == &gid);
	ibv_ack_cq_events(which, 1);
	reach(cq, 7, IBV_WC_SUCCESS);
	MUST(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == 7);
	MUST(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM && be32toh(ibv_wc_read_imm_data(cq)) == 0x12345678);
	MUST(ibv_wc_read_qp_num(cq) == peer->qp_num && ibv_wc_read_completion_ts(cq) > 0);
	MUST(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	MUST(!strcmp(memory + 4096, "inline"));
	puts("send with immediate, event");

	uint64_t *counter = (uint64_t *)(memory + 128), *before = (uint64_t *)(memory + 256);
	*counter = 40;
	ibv_wr_start(ex);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(ex, mr->rkey, (uintptr_t)counter, 2);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)before, 8);
	ex->wr_id = 3;
	ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)counter);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory + 512, 8);
	MUST(!ibv_wr_complete(ex));
	reach(cq, 2, IBV_WC_SUCCESS);
	ibv_end_poll(cq);
	reach(cq, 3, IBV_WC_SUCCESS);
	ibv_end_poll(cq);
	MUST(*before == 40 && *counter == 42 && *(uint64_t *)(memory + 512) == 42);
	puts("atomic and read");

	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	MUST(mw);
	struct ibv_mw_bind_info info = {mr, (uintptr_t)memory + 4096, 64, IBV_ACCESS_REMOTE_WRITE};
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr bind = {.wr_id = 4, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = rkey;
	bind.bind_mw.bind_info = info;
	MUST(!ibv_post_send(peer, &bind, &bad) && mw->rkey == rkey);
	reach(cq, 4, IBV_WC_SUCCESS);
	MUST(ibv_wc_read_opcode(cq) == IBV_WC_BIND_MW);
	ibv_end_poll(cq);
	strcpy(memory, "through the window");
	ibv_wr_start(ex);
	ex->wr_id = 5;
	ibv_wr_rdma_write(ex, rkey, (uintptr_t)memory + 4096);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 19);
	MUST(!ibv_wr_complete(ex));
	reach(cq, 5, IBV_WC_SUCCESS);
	ibv_end_poll(cq);
	MUST(!strcmp(memory + 4096, "through the window"));
	puts("window");

	ibv_wr_start(ex);
	ex->wr_id = 6;
	ibv_wr_rdma_write(ex, rkey, (uintptr_t)memory + 4096 + 64);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 1);
	MUST(!ibv_wr_complete(ex));
	reach(cq, 6, IBV_WC_REM_ACCESS_ERR);
	ibv_end_poll(cq);
	struct pollfd events = {.fd = context->async_fd, .events = POLLIN};
	MUST(poll(&events, 1, 5000) == 1);
	struct ibv_async_event event;
	MUST(!ibv_get_async_event(context, &event));
	MUST(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == peer);
	ibv_ack_async_event(&event);
	struct ibv_qp_attr attr;
	MUST(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &plain) && attr.qp_state == IBV_QPS_ERR);
	puts("remote access error, asynchronous event");

	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_dealloc_mw(mw));
	MUST(!ibv_destroy_cq((void *)cq) && !ibv_destroy_comp_channel(channel));
	structs_at_odd_addresses(mr);
	regions_of_other_kinds();
	moderated_events();
	MUST(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("all gone");
	return 0;
}
