// Functions that came with rdma-core 59 to 65, found by their versions: this machine's headers may be older.
// Prints the first thing that is wrong and ends with 1.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(what)                                                                   \
	do {                                                                              \
		if (!(what)) {                                                                \
			printf("line %d: %s: errno %d (%s)\n", __LINE__, #what, errno, strerror(errno)); \
			exit(1);                                                                  \
		}                                                                             \
	} while (0)

static void *find(const char *library, const char *name, const char *version)
{
	void *handle = dlopen(library, RTLD_NOW);
	CHECK(handle);
	void *found = dlvsym(handle, name, version);
	if (!found) {
		printf("%s@%s is not there\n", name, version);
		exit(1);
	}
	return found;
}
#define VERBS(name, version) find("libibverbs.so.1", name, "IBVERBS_" version)
#define CM(name, version) find("librdmacm.so.1", name, "RDMACM_" version)

enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };
struct init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

static void regions(struct ibv_pd *pd, struct ibv_pd *other)
{
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct init_attr *) = VERBS("ibv_reg_mr_ex", "1.15");
	void *(*alloc_buf)(struct ibv_pd *, size_t, void **) = VERBS("ibv_alloc_buf", "1.17");
	int (*export_buf)(void *) = VERBS("ibv_export_buf_dmabuf_fd", "1.18");
	void (*free_buf)(void *) = VERBS("ibv_free_buf", "1.17");
	struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int) = VERBS("ibv_reg_buf_mr", "1.17");
	static char memory[8192];
	struct init_attr attr = {.length = 4096, .comp_mask = ADDR, .addr = memory};
	attr.access = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_mr *mr = reg_mr_ex(pd, &attr);
	CHECK(mr && mr->addr == memory && mr->length == 4096 && !ibv_dereg_mr(mr));
	attr.comp_mask = ADDR | DMAH;
	CHECK(!reg_mr_ex(pd, &attr) && errno == EOPNOTSUPP);
	attr.comp_mask = 0;
	CHECK(!reg_mr_ex(pd, &attr) && errno == EINVAL);
	attr.comp_mask = ADDR | FD;
	CHECK(!reg_mr_ex(pd, &attr) && errno == EINVAL);
	attr.fd = memfd_create("region", 0);
	CHECK(attr.fd >= 0 && !ftruncate(attr.fd, 8192));
	attr.comp_mask = FD | FD_OFFSET | IOVA;
	attr.fd_offset = 4096;
	CHECK((mr = reg_mr_ex(pd, &attr)) && mr->length == 4096 && !ibv_dereg_mr(mr));
	close(attr.fd);

	void *buf = NULL;
	char *start = alloc_buf(pd, 10000, &buf);
	CHECK(start && buf && (uintptr_t)start % 4096 == 0 && start[9999] == 0);
	CHECK((mr = reg_buf_mr(pd, buf, start + 1, 9999, IBV_ACCESS_LOCAL_WRITE)) && !ibv_dereg_mr(mr));
	CHECK(!reg_buf_mr(pd, buf, start + 1, 10000, 0) && errno == EINVAL);
	CHECK(!reg_buf_mr(pd, buf, memory, 1, 0) && errno == EINVAL);
	CHECK(!reg_buf_mr(other, buf, start, 1, 0) && errno == EINVAL);
	attr = (struct init_attr){.length = 100, .comp_mask = ADDR | BUF, .addr = start, .buf = buf};
	CHECK((mr = reg_mr_ex(pd, &attr)) && !ibv_dereg_mr(mr));
	attr.comp_mask = ADDR | BUF | FD_OFFSET;
	CHECK(!reg_mr_ex(pd, &attr) && errno == EINVAL);
	CHECK(!alloc_buf(pd, 0, &buf) && errno == EINVAL);
	CHECK(export_buf(buf) == -1 && errno == ENODATA);
	CHECK(export_buf(NULL) == -1 && errno == EINVAL);
	free_buf(buf);
}

static void what_is_not_supported(struct ibv_context *context)
{
	void *(*alloc_dmah)(struct ibv_context *, void *) = VERBS("ibv_alloc_dmah", "1.15");
	int (*export_dm)(void *) = VERBS("ibv_dm_export_dmabuf_fd", "1.16");
	void *(*create_counter)(struct ibv_context *, void *) = VERBS("ibv_create_comp_cntr", "1.18");
	int (*query_counters)(struct ibv_context *, void *, size_t) = VERBS("_ibv_query_comp_cntr_caps", "1.18");
	const char *(*opcode)(int) = VERBS("ibv_wr_opcode_str", "PRIVATE_34");
	CHECK(!alloc_dmah(context, NULL) && errno == EOPNOTSUPP);
	CHECK(export_dm(NULL) == -1 && errno == EOPNOTSUPP);
	CHECK(!create_counter(context, NULL) && errno == EOPNOTSUPP);
	CHECK(query_counters(context, NULL, 0) == EOPNOTSUPP);
	CHECK(!strcmp(opcode(IBV_WR_RDMA_READ), "rdma-read") && !strcmp(opcode(99), "unknown"));
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, int kind)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK((int)event->event == kind);
	return event;
}

static void addresses(void)
{
	enum { RESOLVED = 16, FAILED, USER, SA = 16, DNS = 32 };
	int (*resolve)(struct rdma_cm_id *, const char *, const char *, struct rdma_addrinfo *) =
		CM("rdma_resolve_addrinfo", "1.4");
	int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **) = CM("rdma_query_addrinfo", "1.4");
	int (*write_event)(struct rdma_cm_id *, int, int, uint64_t) = CM("rdma_write_cm_event", "1.4");
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo hints = {0}, *info;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(query(id, &info) && errno == ENODATA);
	hints.ai_flags = DNS;
	CHECK(!resolve(id, "127.0.0.1", "7471", &hints));
	event = next(channel, RESOLVED);
	CHECK(event->id == id && event->status == 0 && !rdma_ack_cm_event(event));
	CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type)RESOLVED), "RDMA_CM_EVENT_ADDRINFO_RESOLVED"));
	CHECK(!query(id, &info) && info->ai_dst_len == sizeof(struct sockaddr_in));
	CHECK(((struct sockaddr_in *)info->ai_dst_addr)->sin_port == htons(7471));
	rdma_freeaddrinfo(info);
	hints.ai_flags = RAI_NUMERICHOST;
	CHECK(!resolve(id, "no address", "7471", &hints));
	event = next(channel, FAILED);
	CHECK(event->status == -ENOENT && !rdma_ack_cm_event(event));
	CHECK(query(id, &info) && errno == ENODATA);
	hints.ai_flags = SA;
	CHECK(resolve(id, NULL, "1", &hints) && errno == EOPNOTSUPP);

	CHECK(!write_event(id, USER, 0x11223344, 0x55667788aabbccdd));
	event = next(channel, USER);
	CHECK(event->status == 0x11223344 && *(uint64_t *)&event->param == 0x55667788aabbccdd);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0) && errno == EINVAL);
	// An identifier that goes while its name is being resolved takes the event with it.
	hints.ai_flags = 0;
	CHECK(!resolve(id, "localhost", "7471", &hints) && !rdma_destroy_id(id));
	struct pollfd waiting = {.fd = channel->fd, .events = POLLIN};
	CHECK(poll(&waiting, 1, 0) == 0);
	rdma_destroy_event_channel(channel);

	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!resolve(id, "127.0.0.1", "7471", NULL) && id->event && (int)id->event->event == RESOLVED);
	CHECK(!rdma_destroy_id(id));
}

static void polls(void)
{
	int (*create)(int) = CM("repoll_create", "1.5");
	int (*control)(int, int, int, struct epoll_event *) = CM("repoll_ctl", "1.5");
	int (*wait)(int, struct epoll_event *, int, int) = CM("repoll_wait", "1.5");
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7471)};
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1}, events[4];
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int set = create(EPOLL_CLOEXEC), listener = rsocket(AF_INET, SOCK_STREAM, 0), pipes[2];
	CHECK(set >= 0 && listener >= 0 && !pipe(pipes) && create(~EPOLL_CLOEXEC) == -1 && errno == EINVAL);
	CHECK(!rbind(listener, (void *)&address, sizeof(address)) && !rlisten(listener, 1));
	CHECK(!control(set, EPOLL_CTL_ADD, listener, &event));
	CHECK(control(set, EPOLL_CTL_ADD, listener, &event) == -1 && errno == EEXIST);
	CHECK(control(set, EPOLL_CTL_MOD, pipes[0], &event) == -1 && errno == ENOENT);
	CHECK(control(set, EPOLL_CTL_ADD, 999, &event) == -1 && errno == EBADF);
	CHECK(control(set, EPOLL_CTL_ADD, set, &event) == -1 && errno == EINVAL);
	CHECK(control(pipes[0], EPOLL_CTL_ADD, listener, &event) == -1 && errno == EBADF);
	CHECK(wait(set, events, 4, 0) == 0);
	CHECK(wait(set, events, 0, 0) == -1 && errno == EINVAL);

	int client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(client >= 0 && !rfcntl(client, F_SETFL, O_NONBLOCK));
	CHECK(!rconnect(client, (void *)&address, sizeof(address)) || errno == EINPROGRESS);
	CHECK(wait(set, events, 4, 10000) == 1 && events[0].data.u64 == 1 && events[0].events & EPOLLIN);
	int server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	// A stream, once; a pipe beside it, as often as it is ready.
	event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 2};
	CHECK(!control(set, EPOLL_CTL_ADD, server, &event) && !control(set, EPOLL_CTL_DEL, listener, NULL));
	event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 3};
	CHECK(!control(set, EPOLL_CTL_ADD, pipes[0], &event));
	struct pollfd writable = {.fd = client, .events = POLLOUT};
	CHECK(rpoll(&writable, 1, 10000) == 1 && rsend(client, "x", 1, 0) == 1);
	CHECK(wait(set, events, 4, 10000) == 1 && events[0].data.u64 == 2);
	CHECK(wait(set, events, 4, 0) == 0);
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(wait(set, events, 4, 10000) == 1 && events[0].data.u64 == 3);
	event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 4};
	CHECK(!control(set, EPOLL_CTL_MOD, server, &event));
	CHECK(wait(set, events, 4, 10000) == 2 && wait(set, events, 1, 10000) == 1);
	CHECK(!rclose(client) && !rclose(server) && !rclose(listener) && !rclose(set));
	CHECK(wait(set, events, 4, 0) == -1 && errno == EBADF);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	CHECK(pd && other);
	regions(pd, other);
	what_is_not_supported(context);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_dealloc_pd(other) && !ibv_close_device(context));
	addresses();
	polls();
	puts("all as it should be");
	return 0;
}
