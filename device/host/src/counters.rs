//! Counters of the layer between the device and the network.

use std::io;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident = $name:literal,)*) => {
        /// Counters of the datapath; those of the protocol are [`rnic::PortCounters`].
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct LinkCounters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl LinkCounters {
            /// Name, as reports print it, and value of each counter, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// System calls that sent datagrams.
    sends = "sends",
    /// Datagrams that were sent.
    sent_datagrams = "sent_datagrams",
    /// Datagrams that were not sent because the kernel had no room for them.
    send_no_room = "send_no_room",
    /// Datagrams that could not be sent: no route, no such source address, longer than the interface's MTU.
    send_no_way = "send_no_way",
    /// Datagrams that the kernel refused to send for another reason, such as a firewall.
    send_refused = "send_refused",
    /// Packets whose fields contradict each other: a defect of the device.
    unencodable = "unencodable",
    /// System calls that received datagrams.
    receives = "receives",
    /// Datagrams that were received.
    received_datagrams = "received_datagrams",
    /// Datagrams dropped because their ICRC was wrong.
    corrupt = "corrupt",
    /// Datagrams dropped because they are no RoCEv2 packets.
    malformed = "malformed",
    /// Records written to shared-memory channels, each of one packet or of many.
    shm_sent = "shm_sent",
    /// Those of them that refer to their payload, which the peer fetches from the memory of this process.
    shm_by_reference = "shm_by_reference",
    /// Records taken from shared-memory channels.
    shm_received = "shm_received",
    /// Requests that this process executed on the memory of a peer on the same host.
    shm_direct = "shm_direct",
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
