//! The pools of `BUFFER_POOL`, and the memory that they are taken of.

use serde_json::{Map, Value};

use super::reader::Reader;

/// The packet memory where `BUFFER_POOL` has no size: that of a Trident 3.
const MEMORY_BYTES: u32 = 32 << 20;

/// The name of the pool of lossless traffic where the file has none, as in SONiC's templates.
const POOL: &str = "ingress_lossless_pool";

/// The pools that arriving packets are charged to.
pub(super) struct Pools {
    /// The packet memory that is simulated.
    pub(super) total_bytes: u32,
    pub(super) headroom_pool_bytes: Option<u32>,
    /// The name of the pool of lossless traffic.
    pub(super) name: String,
    /// Size and headroom of all of them; 0 where the file has no sizes.
    pub(super) pool_bytes: u64,
}

impl Reader<'_> {
    pub(super) fn pools(&self) -> Pools {
        let pools = self.table("BUFFER_POOL");
        let mut total = 0_u64;
        let (mut xoff, mut shared) = (None, POOL.to_owned());
        for (name, pool) in pools.into_iter().flat_map(Map::iter) {
            let path = ["BUFFER_POOL", name];
            let bytes = |field| {
                let read = self.optional(&path, pool, field, u64::from(u32::MAX));
                self.take("", read).flatten()
            };
            let size = bytes("size").unwrap_or(0);
            // A pool of type both is one memory for arriving and leaving packets.
            if matches!(
                pool.get("type").and_then(Value::as_str),
                Some("ingress" | "both")
            ) {
                // The pool with headroom is the one of lossless traffic.
                if total == 0 || pool.get("xoff").is_some() {
                    shared.clone_from(name);
                }
                total += size;
                xoff = bytes("xoff").or(xoff);
            }
        }
        let pool_bytes = total + xoff.unwrap_or(0);
        let total_bytes = match total {
            0 => MEMORY_BYTES,
            _ => u32::try_from(pool_bytes).unwrap_or(u32::MAX),
        };
        Pools {
            total_bytes,
            headroom_pool_bytes: xoff.map(|xoff| xoff as u32),
            name: shared,
            pool_bytes,
        }
    }

    /// The chip's memory, which orchagent writes into the database of states. Size and headroom of a pool are
    /// both taken of it (sonic-net, sonic-buildimage issue 28657).
    pub(super) fn memory(&self, pools: u64) -> Option<u64> {
        let path = ["BUFFER_MAX_PARAM_TABLE", "global"];
        let entry = self.table(path[0])?.get(path[1])?;
        let memory = self.optional(&path, entry, "mmu_size", u64::from(u32::MAX));
        let memory = self.take("", memory).flatten()?;
        if pools > memory {
            let what = format!(
                "size and xoff are {pools} bytes, and the chip has {memory} (mmu_size): it refuses lossless \
                 buffers, which are simulated as if they were there"
            );
            self.not_simulated(&["BUFFER_POOL"], "", &what);
        }
        Some(memory)
    }
}
