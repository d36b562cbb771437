// nvme-hold ADDRESS PORT COUNT QUEUE SECONDS SOURCE...: makes COUNT connections as an NVMe host with queues
// of 1024 entries, from each source address in turn: REQ for queue QUEUE, RTU, then Connect to the discovery
// service, which asks for no secret. Prints how many were established, keeps all for SECONDS, and ends.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CAPSULE = 64 + 1024, ROOM = 8192, WAIT_MS = 1000 };

static struct rdma_event_channel *channel;

// Waits for an event of an identifier; returns whether it is the wanted one. Events of others are of
// connections that the target has closed.
static int got(struct rdma_cm_id *id, enum rdma_cm_event_type wanted) {
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    while (poll(&wait, 1, WAIT_MS) == 1 && !rdma_get_cm_event(channel, &event)) {
        int is_own = event->id == id, kind = event->event;
        rdma_ack_cm_event(event);
        if (is_own)
            return kind == (int)wanted;
    }
    return 0;
}

static void put_sockaddr(struct sockaddr_in *place, const char *address, int port) {
    *place = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, address, &place->sin_addr) != 1) {
        fprintf(stderr, "nvme-hold: %s is no IPv4 address\n", address);
        exit(2);
    }
}

// Connect (NVMe Base 6.3) to the discovery subsystem, with its data in the capsule.
static void fill_connect(char *capsule, int number) {
    memset(capsule, 0, CAPSULE);
    capsule[0] = 0x7f;
    capsule[1] = 0x40;
    capsule[4] = 1;
    capsule[32] = 0;
    capsule[33] = 4; // SGL: 1024 bytes at offset 0 of the capsule
    capsule[39] = 1;
    capsule[44] = (char)0xfe; // SQSIZE: 1022
    capsule[45] = 3;
    char *data = capsule + 64;
    memcpy(data, &number, sizeof number);
    data[4] = 1;
    data[16] = data[17] = (char)0xff;
    strcpy(data + 256, "nqn.2014-08.org.nvmexpress.discovery");
    snprintf(data + 512, 256, "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-%012d", number);
}

// A connection; returns whether it was established.
static int hold(struct sockaddr_in *from, struct sockaddr_in *to, int queue, int number) {
    struct rdma_cm_id *id;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
        rdma_resolve_addr(id, (struct sockaddr *)from, (struct sockaddr *)to, WAIT_MS) ||
        !got(id, RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(id, WAIT_MS) ||
        !got(id, RDMA_CM_EVENT_ROUTE_RESOLVED))
        return 0;
    struct ibv_qp_init_attr attributes = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    if (rdma_create_qp(id, NULL, &attributes))
        return 0;
    char *memory = aligned_alloc(4096, ROOM);
    struct ibv_mr *region = memory ? ibv_reg_mr(id->pd, memory, ROOM, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!region)
        return 0;
    struct ibv_sge answer = {(uintptr_t)memory + 4096, 64, region->lkey};
    struct ibv_recv_wr receive = {.sg_list = &answer, .num_sge = 1}, *bad_receive;
    ibv_post_recv(id->qp, &receive, &bad_receive);
    // RDMA transport 1.0, figure 6: format, queue, entries of the host's receive and send queues, controller.
    unsigned char private[32] = {0, 0, (unsigned char)queue, 0, 0, 4, 0xff, 3, 0xff, 0xff};
    struct rdma_conn_param parameters = {
        .private_data = private,
        .private_data_len = sizeof private,
        .responder_resources = 1,
        .initiator_depth = 1,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
    if (rdma_connect(id, &parameters) || !got(id, RDMA_CM_EVENT_ESTABLISHED))
        return 0;
    fill_connect(memory, number);
    struct ibv_sge capsule = {(uintptr_t)memory, CAPSULE, region->lkey};
    struct ibv_send_wr send = {
        .sg_list = &capsule, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad_send;
    struct ibv_wc completion;
    if (ibv_post_send(id->qp, &send, &bad_send))
        return 0;
    for (int tries = 0; tries < 1000 && ibv_poll_cq(id->recv_cq, 1, &completion) == 0; tries++)
        usleep(100);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 7)
        return 2;
    int count = atoi(argv[3]), queue = atoi(argv[4]), established = 0;
    struct sockaddr_in to, from;
    put_sockaddr(&to, argv[1], atoi(argv[2]));
    channel = rdma_create_event_channel();
    for (int number = 0; channel && number < count; number++) {
        put_sockaddr(&from, argv[6 + number % (argc - 6)], 0);
        established += hold(&from, &to, queue, number);
    }
    printf("%d of %d established\n", established, count);
    fflush(stdout);
    sleep(atoi(argv[5]));
    return established ? 0 : 1;
}
