// removal ADDRESS: connects two identifiers of this process over the device that has the address, binds and
// resolves others, says "ready", and then prints what all hear while somebody takes the device's interface
// away: the identifiers, and the device's own asynchronous events.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static struct rdma_cm_event *await(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	check(rdma_get_cm_event(channel, &event), "an event");
	if (event->event != wanted) {
		fprintf(stderr, "%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
		exit(1);
	}
	return event;
}

static void furnish(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	check(!attr.send_cq || rdma_create_qp(id, NULL, &attr), "a queue pair");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7000)};
	if (argc != 2 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "removal ADDRESS\n");
		return 2;
	}
	struct rdma_event_channel *serving = rdma_create_event_channel(), *asking = rdma_create_event_channel();
	struct rdma_event_channel *accepted = rdma_create_event_channel();
	struct rdma_event_channel *idle = rdma_create_event_channel(), *anywhere = rdma_create_event_channel();
	struct rdma_cm_id *listener, *active, *passive, *bound, *wild;
	check(rdma_create_id(serving, &listener, NULL, RDMA_PS_TCP), "an identifier");
	check(rdma_bind_addr(listener, (struct sockaddr *)&address) || rdma_listen(listener, 1), "a listener");
	check(rdma_create_id(asking, &active, NULL, RDMA_PS_TCP), "an identifier");
	check(rdma_resolve_addr(active, NULL, (struct sockaddr *)&address, 2000), "an address");
	rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ADDR_RESOLVED));
	check(rdma_resolve_route(active, 2000), "a route");
	rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ROUTE_RESOLVED));
	furnish(active);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	check(rdma_connect(active, &param), "a connection");
	struct rdma_cm_event *event = await(serving, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive = event->id;
	rdma_ack_cm_event(event);
	furnish(passive);
	check(rdma_accept(passive, &param), "an acceptance");
	rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_ESTABLISHED));
	rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_ESTABLISHED));
	check(rdma_migrate_id(passive, accepted), "another channel");
	check(rdma_create_id(idle, &bound, NULL, RDMA_PS_TCP), "an identifier");
	address.sin_port = 0;
	check(rdma_bind_addr(bound, (struct sockaddr *)&address), "an address");
	check(rdma_create_id(anywhere, &wild, NULL, RDMA_PS_TCP), "an identifier");
	address.sin_addr.s_addr = INADDR_ANY;
	check(rdma_bind_addr(wild, (struct sockaddr *)&address) || rdma_listen(wild, 1), "a listener");
	puts("ready");
	fflush(stdout);

	rdma_ack_cm_event(await(asking, RDMA_CM_EVENT_DEVICE_REMOVAL));
	puts("the active side is told");
	rdma_ack_cm_event(await(accepted, RDMA_CM_EVENT_DEVICE_REMOVAL));
	puts("the passive side is told");
	rdma_ack_cm_event(await(serving, RDMA_CM_EVENT_DEVICE_REMOVAL));
	puts("the listener is told");
	rdma_ack_cm_event(await(idle, RDMA_CM_EVENT_DEVICE_REMOVAL));
	puts("who is only bound is told");
	struct pollfd waits = {.fd = anywhere->fd, .events = POLLIN};
	puts(poll(&waits, 1, 0) == 0 ? "who listens anywhere goes on" : "who listens anywhere is told");
	struct ibv_async_event news;
	do {
		check(ibv_get_async_event(active->verbs, &news), "an asynchronous event");
		ibv_ack_async_event(&news);
	} while (news.event_type != IBV_EVENT_DEVICE_FATAL);
	puts("the device says so itself");
	rdma_destroy_qp(active), rdma_destroy_qp(passive);
	check(rdma_destroy_id(active) || rdma_destroy_id(passive) || rdma_destroy_id(listener), "an end");
	check(rdma_destroy_id(bound) || rdma_destroy_id(wild), "an end");
	puts("all is given back");
	return 0;
}
