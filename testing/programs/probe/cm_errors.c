// cm_errors OURS FOREIGN ABSENT [careful]: what librdmacm returns for wrong calls and refused connections,
// case by case, as its manual pages say. OURS is an IPv4 address of this host that has a device, FOREIGN one
// that no route leads to, ABSENT one on the link of OURS that no host has. Each case is a line: its name and
// its result, without anything that differs from run to run. `careful` leaves out the calls that make
// rdma-core's own library crash.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *ours, *foreign, *absent;
static int careful;
static uint16_t next_port = 7000;

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

static void say(const char *name, const char *what) { printf("%s: %s\n", name, what); fflush(stdout); }

static const char *told(int code)
{
	static char text[4][80];
	static int turn;
	char *place = text[turn++ % 4];
	if (!code)
		return "0";
	snprintf(place, sizeof text[0], "%d %s", code, strerrorname_np(errno));
	return place;
}

static void calls(const char *name, int code) { say(name, told(code)); }

static struct sockaddr_in v4(const char *address, uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, address, &in.sin_addr);
	return in;
}

static struct sockaddr_in6 v6(const char *address, uint16_t port)
{
	struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	inet_pton(AF_INET6, address, &in.sin6_addr);
	return in;
}

static struct side side(enum rdma_port_space space)
{
	struct side made = {.channel = rdma_create_event_channel()};
	if (!made.channel || rdma_create_id(made.channel, &made.id, NULL, space)) {
		perror("an identifier");
		exit(1);
	}
	return made;
}

static void end(struct side *side)
{
	if (side->id)
		rdma_destroy_id(side->id);
	rdma_destroy_event_channel(side->channel);
}

// The next event, or NULL when none comes for ten seconds.
static struct rdma_cm_event *next(struct side *side)
{
	struct rdma_cm_event *event;
	struct pollfd waits = {.fd = side->channel->fd, .events = POLLIN};
	if (poll(&waits, 1, 10000) != 1 || rdma_get_cm_event(side->channel, &event))
		return NULL;
	return event;
}

// "EVENT status" of the next event, which is given back. Error numbers are said by their names.
static const char *happens(struct side *side)
{
	static char text[120];
	struct rdma_cm_event *event = next(side);
	if (!event)
		return "no event";
	const char *name = rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_");
	if (event->status < 0)
		snprintf(text, sizeof text, "%s -%s", name, strerrorname_np(-event->status));
	else
		snprintf(text, sizeof text, "%s %d", name, event->status);
	rdma_ack_cm_event(event);
	return text;
}

// The same of an event that brings no private data.
static const char *happens_without_data(struct side *side)
{
	static char text[160];
	struct rdma_cm_event *event = next(side);
	if (!event)
		return "no event";
	snprintf(text, sizeof text, "%s %d, private data %s, length %d",
		 rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_"), event->status,
		 event->param.conn.private_data ? "there" : "NULL", event->param.conn.private_data_len);
	rdma_ack_cm_event(event);
	return text;
}

// What poll(2) says of reading and writing a descriptor.
static const char *polled(int fd)
{
	struct pollfd asked = {.fd = fd, .events = POLLIN | POLLOUT};
	if (poll(&asked, 1, 0) < 0)
		return "poll fails";
	return asked.revents == 0 ? "neither" : asked.revents == POLLIN ? "readable" : "writable";
}

static int bind4(struct side *side, const char *address, uint16_t port)
{
	struct sockaddr_in in = v4(address, port);
	return rdma_bind_addr(side->id, (struct sockaddr *)&in);
}

static int resolve_within(struct side *side, const char *address, uint16_t port, int timeout_ms)
{
	struct sockaddr_in in = v4(address, port);
	return rdma_resolve_addr(side->id, NULL, (struct sockaddr *)&in, timeout_ms);
}

static int resolve4(struct side *side, const char *address, uint16_t port)
{
	return resolve_within(side, address, port, 2000);
}

static struct side listener(enum rdma_port_space space, uint16_t port, int backlog)
{
	struct side made = side(space);
	if (bind4(&made, ours, port) || rdma_listen(made.id, backlog)) {
		perror("a listener");
		exit(1);
	}
	return made;
}

// An identifier that knows the way to `port` of ours.
static struct side routed(enum rdma_port_space space, uint16_t port)
{
	struct side made = side(space);
	if (resolve4(&made, ours, port) || strcmp(happens(&made), "ADDR_RESOLVED 0") ||
	    rdma_resolve_route(made.id, 2000) || strcmp(happens(&made), "ROUTE_RESOLVED 0")) {
		perror("a route");
		exit(1);
	}
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1,
		.qp_type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC};
	attr.send_cq = attr.recv_cq = ibv_create_cq(made.id->verbs, 8, NULL, NULL, 0);
	if (!attr.send_cq || rdma_create_qp(made.id, NULL, &attr)) {
		perror("a queue pair");
		exit(1);
	}
	return made;
}

static void furnish(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1, .qp_type = type};
	attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	if (!attr.send_cq || rdma_create_qp(id, NULL, &attr)) {
		perror("a queue pair");
		exit(1);
	}
}

static int connect_with(struct side *side, const void *data, uint8_t length)
{
	struct rdma_conn_param param = {.private_data = data, .private_data_len = length,
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 3, .rnr_retry_count = 3};
	return rdma_connect(side->id, &param);
}

static void addresses(void)
{
	struct side it = side(RDMA_PS_TCP), other = side(RDMA_PS_TCP), third = side(RDMA_PS_TCP);
	calls("no route", resolve4(&it, foreign, 7));
	calls("bind to an address that is not ours", bind4(&other, foreign, 7));
	struct sockaddr_in source = v4(foreign, 0), destination = v4(ours, 7);
	calls("resolve from an address that is not ours", rdma_resolve_addr(third.id,
		(struct sockaddr *)&source, (struct sockaddr *)&destination, 2000));
	end(&it), end(&other), end(&third);
	it = side(RDMA_PS_TCP), other = side(RDMA_PS_TCP);
	source = v4(ours, 0), destination = v4(foreign, 7);
	calls("no route from an address of ours", rdma_resolve_addr(it.id, (struct sockaddr *)&source,
		(struct sockaddr *)&destination, 2000));
	calls("bind to a loopback address", bind4(&other, "127.0.0.1", 0));
	say("has a device then", other.id->verbs ? "yes" : "no");
	end(&it), end(&other);
	it = side(RDMA_PS_TCP), other = side(RDMA_PS_TCP), third = side(RDMA_PS_TCP);
	calls("bind", bind4(&it, ours, next_port));
	calls("bind twice", bind4(&it, ours, next_port));
	calls("a port in use", bind4(&other, ours, next_port));
	calls("a port in use at any address", bind4(&third, "0.0.0.0", next_port));
	struct sockaddr_in6 six = v6("::1", 7);
	calls("bound over IPv4, to IPv6", rdma_resolve_addr(it.id, NULL, (struct sockaddr *)&six, 2000));
	struct sockaddr none = {.sa_family = AF_UNIX};
	struct side free = side(RDMA_PS_TCP), again = side(RDMA_PS_TCP);
	calls("bind to any port", bind4(&free, ours, 0));
	uint16_t any = ntohs(rdma_get_src_port(free.id));
	calls("its port, in use", bind4(&again, ours, any));
	end(&free);
	calls("its port, free again", bind4(&again, ours, any));
	end(&again);
	calls("no family of ours", rdma_bind_addr(other.id, &none));
	calls("still free after that", bind4(&other, ours, next_port + 1));
	end(&it), end(&other), end(&third);
	next_port += 2;
}

// A peer that does not answer ARP is reported within the timeout, after which the identifier is usable.
static void neighbours(void)
{
	struct side it = side(RDMA_PS_TCP);
	calls("resolve an absent neighbour", resolve_within(&it, absent, 7, 300));
	calls("resolve another meanwhile", resolve4(&it, ours, 7));
	calls("listen meanwhile", rdma_listen(it.id, 1));
	say("the absent neighbour", happens(&it));
	say("has a device after that", it.id->verbs ? "yes" : "no");
	calls("resolve another after that", resolve4(&it, ours, 7));
	say("the other one", happens(&it));
	end(&it);
	it = side(RDMA_PS_UDP);
	calls("resolve an absent neighbour without time", resolve_within(&it, absent, 7, 0));
	say("the absent neighbour without time", happens(&it));
	calls("listen after that", rdma_listen(it.id, 1));
	end(&it);
	it = side(RDMA_PS_TCP);
	calls("resolve before a migration", resolve_within(&it, absent, 7, 300));
	struct side other = side(RDMA_PS_TCP);
	calls("migrate", rdma_migrate_id(it.id, other.channel));
	say("the absent neighbour after a migration", happens(&other));
	end(&it), end(&other);
	it = side(RDMA_PS_TCP);
	calls("resolve an absent neighbour for ever", resolve_within(&it, absent, 7, -1));
	calls("destroy the identifier meanwhile", rdma_destroy_id(it.id));
	it.id = NULL;
	end(&it);
	struct rdma_cm_id *synchronous;
	if (rdma_create_id(NULL, &synchronous, NULL, RDMA_PS_TCP)) {
		perror("an identifier");
		exit(1);
	}
	struct sockaddr_in in = v4(absent, 7);
	calls("wait for an absent neighbour",
	      rdma_resolve_addr(synchronous, NULL, (struct sockaddr *)&in, 300));
	rdma_destroy_id(synchronous);
}

// The kernel's port gets GIDs, with an event for each, until the check for double IPv6 addresses has ended
// (RFC 4862, section 5.4: a second or two after the interface came up).
static void take_events_of_a_new_port(struct ibv_context *verbs)
{
	struct pollfd waits = {.fd = verbs->async_fd, .events = POLLIN};
	while (poll(&waits, 1, 2000) > 0) {
		struct ibv_async_event event;
		if (ibv_get_async_event(verbs, &event)) {
			perror("an asynchronous event");
			exit(1);
		}
		if (event.event_type != IBV_EVENT_GID_CHANGE && event.event_type != IBV_EVENT_PORT_ACTIVE) {
			printf("an event of a new port: %s\n", ibv_event_type_str(event.event_type));
			exit(1);
		}
		ibv_ack_async_event(&event);
	}
}

// Descriptors that wake event loops: readable while something waits, and never writable.
static void descriptors(void)
{
	struct side it = side(RDMA_PS_TCP);
	say("an event channel without events is", polled(it.channel->fd));
	resolve4(&it, ours, 7);
	struct pollfd waits = {.fd = it.channel->fd, .events = POLLIN};
	poll(&waits, 1, 10000);
	say("one with an event is", polled(it.channel->fd));
	say("the event", happens(&it));
	say("afterwards it is", polled(it.channel->fd));
	struct ibv_comp_channel *channel = ibv_create_comp_channel(it.id->verbs);
	say("a completion channel is", polled(channel->fd));
	if (careful)
		take_events_of_a_new_port(it.id->verbs);
	say("the descriptor of asynchronous events is", polled(it.id->verbs->async_fd));
	ibv_destroy_comp_channel(channel);
	end(&it);
}

static void states(void)
{
	struct side it = side(RDMA_PS_TCP);
	struct rdma_conn_param param = {0};
	if (!careful) {
		calls("route without address", rdma_resolve_route(it.id, 2000));
		calls("connect without route", connect_with(&it, NULL, 0));
		calls("accept without request", rdma_accept(it.id, &param));
	}
	calls("reject without request", rdma_reject(it.id, NULL, 0));
	calls("disconnect without connection", rdma_disconnect(it.id));
	calls("listen without address", rdma_listen(it.id, 1));
	say("has a port then", rdma_get_src_port(it.id) ? "yes" : "no");
	calls("listen twice", rdma_listen(it.id, 1));
	calls("resolve from a listener", resolve4(&it, ours, 7));
	end(&it);
	it = side(RDMA_PS_TCP);
	calls("resolve", resolve4(&it, ours, 7));
	say("resolved", happens(&it));
	calls("resolve twice", resolve4(&it, ours, 7));
	calls("listen when resolved", rdma_listen(it.id, 1));
	end(&it);
}

static void options(void)
{
	struct side it = side(RDMA_PS_TCP), other = side(RDMA_PS_TCP), third = side(RDMA_PS_TCP);
	uint8_t byte = 32;
	int word = 1;
	calls("TOS", rdma_set_option(it.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
	calls("TOS of four bytes", rdma_set_option(it.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &word, 4));
	byte = 20;
	calls("ACK timeout", rdma_set_option(it.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1));
	calls("an option of no level", rdma_set_option(it.id, 77, 0, &word, 4));
	calls("an option of no name", rdma_set_option(it.id, RDMA_OPTION_ID, 77, &word, 4));
	calls("shared address", rdma_set_option(it.id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &word, 4));
	calls("the other as well", rdma_set_option(other.id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &word, 4));
	calls("bind one", bind4(&it, ours, next_port));
	calls("bind the other", bind4(&other, ours, next_port));
	calls("bind a third that does not share", bind4(&third, ours, next_port));
	calls("one listens", rdma_listen(it.id, 1));
	calls("the other listens", rdma_listen(other.id, 1));
	end(&it), end(&other), end(&third);
	next_port++;
	it = side(RDMA_PS_TCP), other = side(RDMA_PS_TCP);
	struct sockaddr_in6 any = v6("::", next_port);
	calls("IPv6 only", rdma_set_option(it.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &word, 4));
	calls("any of IPv6", rdma_bind_addr(it.id, (struct sockaddr *)&any));
	calls("any of IPv4", bind4(&other, "0.0.0.0", next_port));
	end(&it), end(&other);
	next_port++;
}

static void refusals(void)
{
	char data[256];
	for (int i = 0; i < (int)sizeof data; i++)
		data[i] = (char)(i + 1);
	struct side it = routed(RDMA_PS_TCP, next_port);
	calls("connect to a port without a listener", connect_with(&it, NULL, 0));
	say("no listener", happens(&it));
	rdma_destroy_qp(it.id);
	end(&it);
	it = routed(RDMA_PS_UDP, next_port);
	calls("datagrams to a port without a listener", connect_with(&it, NULL, 0));
	say("no datagram service", happens(&it));
	rdma_destroy_qp(it.id);
	end(&it);

	struct side server = listener(RDMA_PS_TCP, next_port, 4);
	it = routed(RDMA_PS_TCP, next_port);
	calls("57 bytes in a request", connect_with(&it, data, 57));
	end(&it);
	it = routed(RDMA_PS_TCP, next_port);
	calls("56 bytes in a request", connect_with(&it, data, 56));
	struct rdma_cm_event *event = next(&server);
	printf("request: length %d, %s\n", event->param.conn.private_data_len,
	       memcmp(event->param.conn.private_data, data, 56) ? "wrong" : "right");
	struct rdma_cm_id *peer = event->id;
	rdma_ack_cm_event(event);
	calls("149 bytes in a refusal", rdma_reject(peer, data, 149));
	rdma_destroy_id(peer);
	say("destroyed unanswered", happens(&it));
	rdma_destroy_qp(it.id);
	end(&it);

	it = routed(RDMA_PS_TCP, next_port);
	connect_with(&it, NULL, 0);
	event = next(&server);
	peer = event->id;
	rdma_ack_cm_event(event);
	calls("148 bytes in a refusal", rdma_reject(peer, data, 148));
	event = next(&it);
	printf("refused: status %d, length %d, %s\n", event->status, event->param.conn.private_data_len,
	       memcmp(event->param.conn.private_data, data, 148) ? "wrong" : "right");
	rdma_ack_cm_event(event);
	calls("refuse twice", rdma_reject(peer, NULL, 0));
	struct rdma_conn_param param = {0};
	calls("accept what was refused", rdma_accept(peer, &param));
	rdma_destroy_id(peer);
	rdma_destroy_qp(it.id);
	end(&it);

	it = routed(RDMA_PS_TCP, next_port);
	connect_with(&it, NULL, 0);
	event = next(&server);
	peer = event->id;
	rdma_ack_cm_event(event);
	furnish(peer, IBV_QPT_RC);
	struct rdma_conn_param long_param = {.private_data = data, .private_data_len = 197,
		.responder_resources = 1, .initiator_depth = 1};
	calls("197 bytes in an acceptance", rdma_accept(peer, &long_param));
	rdma_destroy_qp(peer);
	rdma_destroy_id(peer);
	say("not accepted after all", happens(&it));
	rdma_destroy_qp(it.id);
	end(&it);
	end(&server);
	next_port++;
}

static void connections(void)
{
	struct side server = listener(RDMA_PS_TCP, next_port, 4), it = routed(RDMA_PS_TCP, next_port);
	char data[196] = "hello";
	connect_with(&it, NULL, 0);
	calls("connect twice", connect_with(&it, NULL, 0));
	struct rdma_cm_event *event = next(&server);
	struct rdma_cm_id *peer = event->id;
	rdma_ack_cm_event(event);
	furnish(peer, IBV_QPT_RC);
	struct rdma_conn_param param = {.private_data = data, .private_data_len = sizeof data,
		.responder_resources = 1, .initiator_depth = 1};
	calls("196 bytes in an acceptance", rdma_accept(peer, &param));
	event = next(&it);
	printf("established: status %d, length %d, %s\n", event->status, event->param.conn.private_data_len,
	       memcmp(event->param.conn.private_data, data, 196) ? "wrong" : "right");
	rdma_ack_cm_event(event);
	say("the server hears", happens_without_data(&server));
	calls("accept twice", rdma_accept(peer, &param));
	if (fork() == 0)
		_exit(0);
	wait(NULL);
	calls("disconnect after a child is gone", rdma_disconnect(it.id));
	say("the other hears", happens_without_data(&server));
	calls("it answers", rdma_disconnect(peer));
	say("and the first hears", happens_without_data(&it));
	rdma_destroy_qp(peer);
	rdma_destroy_id(peer);
	rdma_destroy_qp(it.id);
	end(&it);

	// Closed while a request waits.
	it = routed(RDMA_PS_TCP, next_port);
	connect_with(&it, NULL, 0);
	struct pollfd waits = {.fd = server.channel->fd, .events = POLLIN};
	poll(&waits, 1, 10000);
	rdma_destroy_id(server.id);
	server.id = NULL;
	say("the listener is closed before the request is seen", happens(&it));
	rdma_destroy_qp(it.id);
	end(&it);
	end(&server);
	next_port++;

	// One request waits; for the next there is no room.
	server = listener(RDMA_PS_TCP, next_port, 1);
	it = routed(RDMA_PS_TCP, next_port);
	struct side more = routed(RDMA_PS_TCP, next_port);
	connect_with(&it, NULL, 0);
	waits.fd = server.channel->fd;
	poll(&waits, 1, 10000);
	connect_with(&more, NULL, 0);
	say("more than the backlog", happens(&more));
	rdma_destroy_qp(it.id), rdma_destroy_qp(more.id);
	end(&it), end(&more), end(&server);
	next_port++;
}

// Both ask each other at once: two connections.
// A client gives up while the server has its request and has not accepted it: nothing happens to the server's
// new identifier, until the server itself accepts or refuses.
static void given_up(void)
{
	struct side server = listener(RDMA_PS_TCP, next_port, 4);
	for (int accepts = 0; accepts < 2; accepts++) {
		struct side it = routed(RDMA_PS_TCP, next_port);
		connect_with(&it, NULL, 0);
		struct rdma_cm_event *event = next(&server);
		struct rdma_cm_id *peer = event->id;
		rdma_ack_cm_event(event);
		furnish(peer, IBV_QPT_RC);
		rdma_destroy_qp(it.id);
		end(&it);
		struct pollfd waits = {.fd = server.channel->fd, .events = POLLIN};
		say("given up before an answer", poll(&waits, 1, 500) ? happens(&server) : "no event");
		struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
		if (accepts)
			calls("accept what was given up", rdma_accept(peer, &param));
		else
			calls("refuse what was given up", rdma_reject(peer, NULL, 0));
		say("and then", poll(&waits, 1, 500) ? happens(&server) : "no event");
		rdma_destroy_qp(peer);
		rdma_destroy_id(peer);
	}
	end(&server);
	next_port++;
}

static void at_once(void)
{
	struct side one = listener(RDMA_PS_TCP, next_port, 4), other = listener(RDMA_PS_TCP, next_port + 1, 4);
	struct side to_other = routed(RDMA_PS_TCP, next_port + 1), to_one = routed(RDMA_PS_TCP, next_port);
	connect_with(&to_other, NULL, 0);
	connect_with(&to_one, NULL, 0);
	struct side *servers[2] = {&one, &other};
	struct rdma_cm_id *peers[2];
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event = next(servers[i]);
		peers[i] = event->id;
		rdma_ack_cm_event(event);
		furnish(peers[i], IBV_QPT_RC);
		struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
		calls("accept one of two at once", rdma_accept(peers[i], &param));
	}
	say("the first of two at once", happens(&to_other));
	say("the second of two at once", happens(&to_one));
	for (int i = 0; i < 2; i++) {
		rdma_destroy_qp(peers[i]);
		rdma_destroy_id(peers[i]);
	}
	rdma_destroy_qp(to_one.id), rdma_destroy_qp(to_other.id);
	end(&to_one), end(&to_other), end(&one), end(&other);
	next_port += 2;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "cm_errors OURS FOREIGN ABSENT [careful]\n");
		return 2;
	}
	ours = argv[1], foreign = argv[2], absent = argv[3], careful = argc > 4;
	addresses();
	neighbours();
	descriptors();
	states();
	options();
	refusals();
	connections();
	given_up();
	at_once();
	return 0;
}
