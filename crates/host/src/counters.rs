//! What happens between the device and the network.

use std::io;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters of the datapath; those of the protocol are [`rnic::PortCounters`].
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct LinkCounters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl LinkCounters {
            /// Name and value of each counter, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Calls that sent something.
    sends,
    /// Datagrams in them.
    sent_datagrams,
    /// Datagrams that the kernel had no room for.
    send_no_room,
    /// Datagrams that there was no way for: no route, no such source address, longer than the interface
    /// takes.
    send_no_way,
    /// Datagrams that the kernel refused otherwise, such as by a firewall.
    send_refused,
    /// Packets whose fields contradict each other: a defect of the device.
    unencodable,
    /// Calls that received something.
    receives,
    /// Datagrams in them.
    received_datagrams,
    /// Datagrams dropped because their ICRC was wrong.
    corrupt,
    /// Datagrams dropped because they are no RoCEv2 packets.
    malformed,
    /// Records sent to programs on this host, each of one packet or of many.
    lane_sent,
    /// Records received from them.
    lane_received,
    /// Requests executed on their memory without them.
    lane_direct,
}

impl LinkCounters {
    pub(crate) fn note_send_error(&mut self, error: &io::Error, datagrams: u64) {
        let counter = match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => &mut self.send_no_room,
            Some(
                libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EADDRNOTAVAIL
                | libc::EMSGSIZE
                | libc::EINVAL,
            ) => &mut self.send_no_way,
            _ => &mut self.send_refused,
        };
        *counter += datagrams;
    }
}
