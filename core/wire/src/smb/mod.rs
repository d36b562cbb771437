//! SMB Direct (MS-SMBD): the messages that carry SMB 2 and 3 over RDMA ([`direct`]), and the parts of SMB 2
//! (MS-SMB2) that a gateway between SMB Direct and TCP reads and rewrites ([`message`]).

pub mod direct;
pub mod message;
