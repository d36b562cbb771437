//! What records are about, and the names of their fields.

/// A field that has no value.
pub const NONE: u64 = u64::MAX;

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident = $number:literal $name:literal [$($field:literal),*],)*) => {
        /// What a record is about.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$meta])* $kind = $number,)*
        }

        impl Kind {
            /// All kinds of events.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Name of the kind in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The names of its fields, in their order.
            pub const fn fields(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => &[$($field),*],)*
                }
            }

            /// The kind of this number.
            pub const fn of(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A call that is not on the data path has returned; its text is the name of the function. The object is
    /// the address of its first argument, where that is no object of verbs.
    Call = 1 "call" ["duration_ns", "errno", "qpn", "size", "object"],
    /// A send request was posted, or refused. Address and lkey are those of its first element; a datagram has
    /// an address handle, and number and Q_Key of its destination.
    Send = 2 "send" ["qpn", "wr_id", "opcode", "flags", "length", "address", "lkey", "remote", "rkey",
        "elements", "errno", "ah", "remote_qpn", "qkey"],
    /// A receive request was posted, or refused. The queue pair is none for a shared receive queue.
    Receive = 3 "receive" ["qpn", "srq", "wr_id", "length", "address", "lkey", "elements", "errno"],
    /// The program took a completion.
    Completion = 4 "completion" ["qpn", "cq", "wr_id", "status", "opcode", "length"],
    /// `ibv_modify_qp`, with the attributes that its mask names. The text has the address of the peer, and
    /// its own one.
    Modify = 5 "modify" ["qpn", "from", "to", "mask", "mtu", "access", "peer", "rq_psn", "sq_psn", "timeout",
        "retry", "rnr_retry", "errno", "qkey"],
    /// Memory was registered, or not.
    Register = 6 "register" ["address", "length", "iova", "access", "lkey", "rkey", "errno"],
    /// Memory was deregistered.
    Deregister = 7 "deregister" ["lkey", "rkey", "errno"],
    /// A queue pair was created.
    Create = 8 "create" ["qpn", "type", "signal_all", "send_wr", "receive_wr", "send_cq",
        "receive_cq", "srq"],
    /// A queue pair was destroyed.
    Destroy = 9 "destroy" ["qpn"],
    /// The program took an event of the connection manager.
    CmEvent = 10 "cm_event" ["event", "status", "id"],
    /// The program took an asynchronous event.
    AsyncEvent = 11 "async_event" ["event", "qpn"],
    /// A queue pair was found in this state when the program took a completion with an error.
    State = 12 "state" ["qpn", "to"],
    /// An address handle was made. The text has the address that datagrams go to, and the own one.
    AddressHandle = 13 "address_handle" ["ah", "errno"],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FIELDS_MAX;

    #[test]
    fn kinds_are_found_by_their_numbers_and_have_room_for_their_fields() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::of(kind as u8), Some(kind));
            assert!(kind.fields().len() <= FIELDS_MAX, "{kind:?}");
        }
        assert_eq!(Kind::of(0), None);
        assert_eq!(Kind::of(14), None);
    }
}
