"""Tests of RDMA code in Python, with pyverbs: python3 -m unittest test_message.py"""

import unittest

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
MESSAGE = bytes(range(256)) * 16


def ipv4_gid(context):
    """RoCE: the entry of the GID table that an IPv4 address has."""
    for index in range(context.query_port(PORT).gid_tbl_len):
        gid = context.query_gid(PORT, index)
        if gid.gid.startswith("0000:0000:0000:0000:0000:ffff:"):
            return gid, index
    raise unittest.SkipTest("the device has no IPv4 address")


class Message(unittest.TestCase):
    def setUp(self):
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 16)
        gid, index = ipv4_gid(self.context)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq,
                          cap=QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1))
        self.one, self.two = QP(self.pd, init), QP(self.pd, init)
        for qp, peer in (self.one, self.two), (self.two, self.one):
            route = GlobalRoute(dgid=gid, sgid_index=index)
            route.hop_limit = 64
            attr = QPAttr(port_num=PORT)
            attr.dest_qp_num = peer.qp_num
            attr.path_mtu = e.IBV_MTU_1024
            attr.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
            attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
            attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
            qp.to_rts(attr)

    def tearDown(self):
        self.context.close()

    def completions(self, wanted):
        done = []
        while len(done) < wanted:
            done += self.cq.poll(wanted - len(done))[1]
        return done

    def test_a_message_arrives_as_it_was_sent(self):
        source = MR(self.pd, len(MESSAGE), e.IBV_ACCESS_LOCAL_WRITE)
        target = MR(self.pd, len(MESSAGE), e.IBV_ACCESS_LOCAL_WRITE)
        source.write(MESSAGE, len(MESSAGE))
        self.two.post_recv(RecvWR(num_sge=1, sg=[SGE(target.buf, len(MESSAGE), target.lkey)]))
        self.one.post_send(SendWR(num_sge=1, sg=[SGE(source.buf, len(MESSAGE), source.lkey)]))
        for done in self.completions(2):
            self.assertEqual(done.status, e.IBV_WC_SUCCESS)
        self.assertEqual(target.read(len(MESSAGE), 0), MESSAGE)

    def test_a_write_without_the_right_is_refused_by_the_peer(self):
        source = MR(self.pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
        target = MR(self.pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
        write = SendWR(num_sge=1, sg=[SGE(source.buf, 64, source.lkey)], opcode=e.IBV_WR_RDMA_WRITE)
        write.set_wr_rdma(target.rkey, target.buf)
        self.one.post_send(write)
        self.assertEqual(self.completions(1)[0].status, e.IBV_WC_REM_ACCESS_ERR)


if __name__ == "__main__":
    unittest.main()
