// half-open ADDRESS PORT COUNT: sends COUNT connection requests (CM REQ) as an NVMe host with queues of 1024
// entries and confirms none of them (no RTU). Prints how many were accepted (REP) and ends when it is killed.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Waits for an event; returns its kind, or -1 when none comes within 2 s.
static int next_event(struct rdma_event_channel *channel) {
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&wait, 1, 2000) != 1 || rdma_get_cm_event(channel, &event))
        return -1;
    int kind = event->event;
    rdma_ack_cm_event(event);
    return kind;
}

static void expect(struct rdma_event_channel *channel, int wanted) {
    int kind;
    do
        kind = next_event(channel);
    while (kind == RDMA_CM_EVENT_CONNECT_RESPONSE || kind == RDMA_CM_EVENT_REJECTED);
    if (kind != wanted) {
        fprintf(stderr, "event %d instead of %d\n", kind, wanted);
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
        return 2;
    int count = atoi(argv[3]), accepted = 0;
    // RDMA transport 1.0, figure 6: format, queue, entries of the host's receive and send queues, controller.
    unsigned short private[16] = {0, 0, 1024, 1023, 0xffff};
    for (int i = 0; i < count; i++) {
        // A channel for each, so that events name their request.
        struct rdma_event_channel *channel = rdma_create_event_channel();
        struct rdma_cm_id *id;
        if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
            return perror("rdma_create_id"), 1;
        if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000))
            return perror("rdma_resolve_addr"), 1;
        expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        if (rdma_resolve_route(id, 2000))
            return perror("rdma_resolve_route"), 1;
        expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
        struct rdma_conn_param param = {.private_data = private, .private_data_len = sizeof private,
            .responder_resources = 16, .retry_count = 7, .rnr_retry_count = 7, .qp_num = 0x1000 + i};
        if (rdma_connect(id, &param))
            return perror("rdma_connect"), 1;
        accepted += next_event(channel) == RDMA_CM_EVENT_CONNECT_RESPONSE;
    }
    printf("accepted %d\n", accepted);
    fflush(stdout);
    pause();
    return 0;
}
