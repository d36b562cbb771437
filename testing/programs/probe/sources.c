// sources: the source addresses, ports and devices that librdmacm gives identifiers of programs that do not
// ask for one. The interface has the addresses and neighbours that sources.sh gives it. Each case is a line.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

// An address of either family.
static union address *at(const char *text, int port)
{
	static union address room[4];
	static int turn;
	union address *it = &room[turn++ % 4];
	memset(it, 0, sizeof *it);
	if (strchr(text, ':')) {
		it->v6.sin6_family = AF_INET6;
		it->v6.sin6_port = htons(port);
		if (inet_pton(AF_INET6, text, &it->v6.sin6_addr) != 1)
			exit(2);
	} else {
		it->v4.sin_family = AF_INET;
		it->v4.sin_port = htons(port);
		if (inet_pton(AF_INET, text, &it->v4.sin_addr) != 1)
			exit(2);
	}
	return it;
}

static const char *text(const struct sockaddr *address)
{
	static char room[2][64];
	static int turn;
	char *it = room[turn++ % 2];
	const union address *of = (const void *)address;
	if (address->sa_family == AF_INET)
		return inet_ntop(AF_INET, &of->v4.sin_addr, it, 64);
	if (address->sa_family == AF_INET6)
		return inet_ntop(AF_INET6, &of->v6.sin6_addr, it, 64);
	return "none";
}

static struct rdma_event_channel *channel;

static struct rdma_cm_id *id(enum rdma_port_space space)
{
	struct rdma_cm_id *made;
	channel = rdma_create_event_channel();
	if (!channel || rdma_create_id(channel, &made, NULL, space)) {
		perror("an identifier");
		exit(1);
	}
	return made;
}

static void destroy(struct rdma_cm_id *it)
{
	rdma_destroy_id(it);
	rdma_destroy_event_channel(channel);
}

// What a call returned, and what the identifier has then.
static void show(const char *name, int code, struct rdma_cm_id *it)
{
	int port = ntohs(rdma_get_src_port(it));
	printf("%s: %s; source %s, %s; %s\n", name, code ? strerrorname_np(errno) : "0",
	       text(rdma_get_local_addr(it)), port == 0 ? "port 0" : port == 7471 ? "port 7471" : "a port",
	       it->verbs ? "a device" : "no device");
	fflush(stdout);
}

// Resolves, and waits for the event.
static int resolve(struct rdma_cm_id *it, union address *from, const char *to)
{
	if (rdma_resolve_addr(it, from ? &from->any : NULL, &at(to, 7)->any, 2000))
		return -1;
	struct rdma_cm_event *event;
	struct pollfd waits = {.fd = channel->fd, .events = POLLIN};
	if (poll(&waits, 1, 10000) != 1 || rdma_get_cm_event(channel, &event)) {
		errno = ETIME;
		return -1;
	}
	int status = event->event == RDMA_CM_EVENT_ADDR_RESOLVED ? 0 : event->status;
	rdma_ack_cm_event(event);
	errno = -status;
	return status ? -1 : 0;
}

// Resolves with a new identifier that is bound to nothing.
static void unasked(const char *name, enum rdma_port_space space, union address *from, const char *to)
{
	struct rdma_cm_id *it = id(space);
	show(name, resolve(it, from, to), it);
	destroy(it);
}

// Binds, and resolves then.
static void bound(const char *name, const char *from, int port, const char *to)
{
	char then[100];
	struct rdma_cm_id *it = id(RDMA_PS_TCP);
	show(name, rdma_bind_addr(it, &at(from, port)->any), it);
	snprintf(then, sizeof then, "%s, then to %s", name, to);
	show(then, resolve(it, NULL, to), it);
	destroy(it);
}

int main(void)
{
	unasked("to the first subnet", RDMA_PS_TCP, NULL, "10.88.0.7");
	unasked("to the second subnet", RDMA_PS_TCP, NULL, "10.89.0.7");
	unasked("to a subnet whose route has a source", RDMA_PS_TCP, NULL, "10.90.0.7");
	unasked("datagrams to the second subnet", RDMA_PS_UDP, NULL, "10.89.0.7");
	unasked("to the own second address", RDMA_PS_TCP, NULL, "10.88.0.101");
	unasked("from the second address", RDMA_PS_TCP, at("10.88.0.101", 0), "10.88.0.7");
	unasked("from the other subnet", RDMA_PS_TCP, at("10.89.0.1", 0), "10.88.0.7");
	unasked("from any address", RDMA_PS_TCP, at("0.0.0.0", 0), "10.89.0.7");
	unasked("from any address and a port", RDMA_PS_TCP, at("0.0.0.0", 7471), "10.89.0.7");
	unasked("from a port of an address", RDMA_PS_TCP, at("10.88.0.101", 7471), "10.88.0.7");
	bound("bound to any address", "0.0.0.0", 0, "10.89.0.7");
	bound("bound to any address and a port", "0.0.0.0", 7471, "10.90.0.7");
	bound("bound to the second address", "10.88.0.101", 0, "10.88.0.7");
	bound("bound to the other subnet", "10.89.0.1", 0, "10.88.0.7");
	bound("bound to any address of IPv6", "::", 0, "fd12::7");
	bound("bound to any address of IPv6, for IPv4", "::", 0, "10.88.0.7");
	bound("bound to any address, for IPv6", "0.0.0.0", 0, "fd12::7");
	unasked("over IPv6", RDMA_PS_TCP, NULL, "fd12::7");
	unasked("over IPv6 to a subnet whose route has a source", RDMA_PS_TCP, NULL, "fd13::7");
	unasked("over IPv6 from the second address", RDMA_PS_TCP, at("fd12::101", 0), "fd12::7");
	unasked("over IPv6 from any address", RDMA_PS_TCP, at("::", 0), "fd12::7");
	struct rdma_cm_id *it = id(RDMA_PS_TCP);
	show("listening without an address", rdma_listen(it, 1), it);
	destroy(it);
	it = id(RDMA_PS_UDP);
	show("listening for datagrams without an address", rdma_listen(it, 1), it);
	destroy(it);
	it = id(RDMA_PS_TCP);
	int code = rdma_bind_addr(it, &at("10.88.0.101", 0)->any);
	show("listening at the second address", code ? code : rdma_listen(it, 1), it);
	destroy(it);
	return 0;
}
