// A small RDMA program in Go, with libibverbs by cgo: it lists the devices, connects two queue pairs of one to
// each other, and a SEND and a WRITE go from one to the other. Nothing in it knows of rockery.
package main

/*
#cgo LDFLAGS: -libverbs
#include <infiniband/verbs.h>
#include <stdlib.h>

// cgo calls no function-like macros, and knows no members of unions.
static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr) {
  return ibv_query_port(context, port, attr);
}
static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *address, size_t length, int access) {
  return ibv_reg_mr(pd, address, length, access);
}
static void write_to(struct ibv_send_wr *request, void *address, uint32_t rkey) {
  request->opcode = IBV_WR_RDMA_WRITE;
  request->wr.rdma.remote_addr = (uintptr_t)address;
  request->wr.rdma.rkey = rkey;
}
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"
)

const (
	size = 100000
	port = 1
)

// must returns an error for a function of libibverbs that returned NULL.
func must[T any](what string, pointer *T, err error) (*T, error) {
	if pointer == nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return pointer, nil
}

// zero returns an error for a function of libibverbs whose result is not 0.
func zero(what string, result C.int) error {
	if result != 0 {
		return fmt.Errorf("%s: %d", what, int(result))
	}
	return nil
}

// devices returns the names of all devices, and the first of them, opened.
func devices() ([]string, *C.struct_ibv_context, error) {
	var count C.int
	list, err := C.ibv_get_device_list(&count)
	if list == nil || count == 0 {
		return nil, nil, fmt.Errorf("there is no device: %v", err)
	}
	defer C.ibv_free_device_list(list)
	var names []string
	for _, device := range unsafe.Slice(list, int(count)) {
		names = append(names, C.GoString(C.ibv_get_device_name(device)))
	}
	context, err := C.ibv_open_device(*list)
	context, err = must("ibv_open_device", context, err)
	return names, context, err
}

// ipv4GID returns the entry of the GID table that an IPv4 address has (RoCE).
func ipv4GID(context *C.struct_ibv_context) (C.union_ibv_gid, int, error) {
	var gid C.union_ibv_gid
	var attr C.struct_ibv_port_attr
	if err := zero("ibv_query_port", C.query_port(context, port, &attr)); err != nil {
		return gid, 0, err
	}
	mapped := append(make([]byte, 10), 0xff, 0xff)
	for index := 0; index < int(attr.gid_tbl_len); index++ {
		if C.ibv_query_gid(context, port, C.int(index), &gid) == 0 && bytes.HasPrefix(gid[:], mapped) {
			return gid, index, nil
		}
	}
	return gid, 0, errors.New("the first device has no IPv4 address")
}

// connect takes a queue pair to RTS, with a peer on the same device.
func connect(qp *C.struct_ibv_qp, peer C.uint32_t, gid C.union_ibv_gid, index int) error {
	attr := C.struct_ibv_qp_attr{
		qp_state: C.IBV_QPS_INIT, port_num: port,
		qp_access_flags: C.IBV_ACCESS_LOCAL_WRITE | C.IBV_ACCESS_REMOTE_WRITE,
	}
	mask := C.int(C.IBV_QP_STATE | C.IBV_QP_PKEY_INDEX | C.IBV_QP_PORT | C.IBV_QP_ACCESS_FLAGS)
	if err := zero("INIT", C.ibv_modify_qp(qp, &attr, mask)); err != nil {
		return err
	}
	attr = C.struct_ibv_qp_attr{
		qp_state: C.IBV_QPS_RTR, path_mtu: C.IBV_MTU_1024, dest_qp_num: peer, min_rnr_timer: 12,
	}
	attr.ah_attr.is_global, attr.ah_attr.port_num = 1, port
	attr.ah_attr.grh.dgid, attr.ah_attr.grh.sgid_index = gid, C.uint8_t(index)
	attr.ah_attr.grh.hop_limit = 64
	mask = C.IBV_QP_STATE | C.IBV_QP_AV | C.IBV_QP_PATH_MTU | C.IBV_QP_DEST_QPN | C.IBV_QP_RQ_PSN |
		C.IBV_QP_MAX_DEST_RD_ATOMIC | C.IBV_QP_MIN_RNR_TIMER
	if err := zero("RTR", C.ibv_modify_qp(qp, &attr, mask)); err != nil {
		return err
	}
	attr = C.struct_ibv_qp_attr{qp_state: C.IBV_QPS_RTS, timeout: 14, retry_cnt: 7, rnr_retry: 7}
	mask = C.IBV_QP_STATE | C.IBV_QP_TIMEOUT | C.IBV_QP_RETRY_CNT | C.IBV_QP_RNR_RETRY | C.IBV_QP_SQ_PSN |
		C.IBV_QP_MAX_QP_RD_ATOMIC
	return zero("RTS", C.ibv_modify_qp(qp, &attr, mask))
}

// await polls until so many requests have completed, all of them with success.
func await(cq *C.struct_ibv_cq, completions int) error {
	for completions > 0 {
		var done C.struct_ibv_wc
		switch polled := C.ibv_poll_cq(cq, 1, &done); {
		case polled < 0:
			return errors.New("ibv_poll_cq failed")
		case polled > 0 && done.status != C.IBV_WC_SUCCESS:
			return errors.New(C.GoString(C.ibv_wc_status_str(done.status)))
		case polled > 0:
			completions--
		}
	}
	return nil
}

// region is memory outside of Go's heap, where requests may point to it, registered.
type region struct {
	memory unsafe.Pointer
	mr     *C.struct_ibv_mr
}

func newRegion(pd *C.struct_ibv_pd, bytes int, access C.int) (*region, error) {
	memory := C.calloc(1, C.size_t(bytes))
	mr, err := C.reg_mr(pd, memory, C.size_t(bytes), access)
	if mr, err = must("ibv_reg_mr", mr, err); err != nil {
		C.free(memory)
		return nil, err
	}
	return &region{memory, mr}, nil
}

func (it *region) bytes() []byte {
	return unsafe.Slice((*byte)(it.memory), int(it.mr.length))
}

// sge describes the first bytes of the region, in memory that requests may point to.
func (it *region) sge() *C.struct_ibv_sge {
	sge := (*C.struct_ibv_sge)(C.calloc(1, C.sizeof_struct_ibv_sge))
	sge.addr, sge.length, sge.lkey = C.uint64_t(uintptr(it.memory)), size, it.mr.lkey
	return sge
}

func (it *region) end() {
	C.ibv_dereg_mr(it.mr)
	C.free(it.memory)
}

// transfer has one queue pair SEND to the other and WRITE into the memory behind, and compares every byte.
func transfer(context *C.struct_ibv_context) error {
	gid, index, err := ipv4GID(context)
	if err != nil {
		return err
	}
	pd, err := C.ibv_alloc_pd(context)
	if pd, err = must("ibv_alloc_pd", pd, err); err != nil {
		return err
	}
	defer C.ibv_dealloc_pd(pd)
	cq, err := C.ibv_create_cq(context, 16, nil, nil, 0)
	if cq, err = must("ibv_create_cq", cq, err); err != nil {
		return err
	}
	defer C.ibv_destroy_cq(cq)
	init := C.struct_ibv_qp_init_attr{send_cq: cq, recv_cq: cq, qp_type: C.IBV_QPT_RC}
	init.cap = C.struct_ibv_qp_cap{max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1}
	var qps [2]*C.struct_ibv_qp
	for i := range qps {
		qp, err := C.ibv_create_qp(pd, &init)
		if qps[i], err = must("ibv_create_qp", qp, err); err != nil {
			return err
		}
		defer C.ibv_destroy_qp(qp)
	}
	for i, qp := range qps {
		if err := connect(qp, qps[1-i].qp_num, gid, index); err != nil {
			return err
		}
	}
	from, err := newRegion(pd, size, 0)
	if err != nil {
		return err
	}
	defer from.end()
	to, err := newRegion(pd, 2*size, C.IBV_ACCESS_LOCAL_WRITE|C.IBV_ACCESS_REMOTE_WRITE)
	if err != nil {
		return err
	}
	defer to.end()
	for i := range from.bytes() {
		from.bytes()[i] = byte(i*31 + i>>8)
	}
	into, out := to.sge(), from.sge()
	defer C.free(unsafe.Pointer(into))
	defer C.free(unsafe.Pointer(out))
	// Requests are in memory of C, because they point to others.
	receive := (*C.struct_ibv_recv_wr)(C.calloc(1, C.sizeof_struct_ibv_recv_wr))
	defer C.free(unsafe.Pointer(receive))
	receive.sg_list, receive.num_sge = into, 1
	var badReceive *C.struct_ibv_recv_wr
	if err := zero("ibv_post_recv", C.ibv_post_recv(qps[1], receive, &badReceive)); err != nil {
		return err
	}
	requests := (*C.struct_ibv_send_wr)(C.calloc(2, C.sizeof_struct_ibv_send_wr))
	defer C.free(unsafe.Pointer(requests))
	both := unsafe.Slice(requests, 2)
	for i := range both {
		both[i].sg_list, both[i].num_sge = out, 1
		both[i].opcode, both[i].send_flags = C.IBV_WR_SEND, C.IBV_SEND_SIGNALED
	}
	both[0].next = &both[1]
	C.write_to(&both[1], unsafe.Add(to.memory, size), to.mr.rkey)
	var badSend *C.struct_ibv_send_wr
	if err := zero("ibv_post_send", C.ibv_post_send(qps[0], requests, &badSend)); err != nil {
		return err
	}
	if err := await(cq, 3); err != nil {
		return err
	}
	if !bytes.Equal(to.bytes(), bytes.Repeat(from.bytes(), 2)) {
		return errors.New("other bytes arrived")
	}
	return nil
}

// run lists the devices, and has the first of them transfer.
func run() ([]string, error) {
	names, context, err := devices()
	if err != nil {
		return nil, err
	}
	defer C.ibv_close_device(context)
	return names, transfer(context)
}

func main() {
	names, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("devices %v\n%d bytes sent, %d bytes written\n", names, size, size)
}
