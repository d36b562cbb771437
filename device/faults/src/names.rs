//! Names of the specifications that rules use: types of queue pairs and operations.

use crate::RuleError;
use core::fmt;

/// The known name that is most like a misspelt one, if one is alike.
pub(crate) fn closest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &&str| strsim::osa_distance(&text.to_lowercase(), &name.to_lowercase());
    let best = known.min_by_key(distance)?;
    (distance(&best) <= best.len().div_ceil(3)).then_some(best)
}

/// Defines an enumeration with the names of its values in rules.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident, $what:literal, {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            /// All values, in the order of their bits.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in rules.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// One bit for this value.
            pub const fn bit(self) -> u32 {
                1 << self as u32
            }

            pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
                let lower = text.to_lowercase();
                let plain = lower.strip_prefix("ibv_wr_").or(lower.strip_prefix("ibv_qpt_"));
                let plain = plain.unwrap_or(&lower);
                let found = Self::ALL.iter().find(|one| one.name() == plain);
                found.copied().ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
                    RuleError::wrong($what, text, format!("write one of {}", names.join(", ")))
                })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named! {
    /// Type of a queue pair (`enum ibv_qp_type`).
    QpKind, "type of queue pairs", {
        /// Reliable connection (`IBV_QPT_RC`).
        Rc = "rc",
        /// Unreliable connection (`IBV_QPT_UC`).
        Uc = "uc",
        /// Unreliable datagram (`IBV_QPT_UD`).
        Ud = "ud",
        /// Extended reliable connection, either end.
        Xrc = "xrc",
    }
}

named! {
    /// Operation of a work request (`enum ibv_wr_opcode`), or a receive.
    Opcode, "operation", {
        /// SEND without immediate data.
        Send = "send",
        /// SEND with immediate data.
        SendWithImm = "send_with_imm",
        /// SEND with invalidate.
        SendWithInv = "send_with_inv",
        /// RDMA WRITE without immediate data.
        RdmaWrite = "rdma_write",
        /// RDMA WRITE with immediate data.
        RdmaWriteWithImm = "rdma_write_with_imm",
        /// RDMA READ from the peer's memory.
        RdmaRead = "rdma_read",
        /// Compare and swap.
        CompareSwap = "atomic_cmp_and_swp",
        /// Fetch and add.
        FetchAdd = "atomic_fetch_and_add",
        /// ATOMIC WRITE of eight bytes.
        AtomicWrite = "atomic_write",
        /// Invalidation of a local key.
        LocalInv = "local_inv",
        /// Binding of a memory window.
        BindMw = "bind_mw",
        /// A receive, of a queue pair or of a shared receive queue.
        Recv = "recv",
    }
}
