//! Buffers that several RDMA READs fill.

use std::ops::Range;
use std::sync::Arc;

use buffer::Buffer;

use super::domain::Domain;

/// A buffer that several RDMA READs fill, each a range of it. Its bytes can be used when all of them have
/// completed: each holds a reference meanwhile.
#[derive(Debug)]
pub struct Landing(Buffer);

impl Landing {
    /// Takes a registered buffer.
    pub fn new(buffer: Buffer) -> Arc<Self> {
        Arc::new(Self(buffer))
    }

    /// The buffer, when no READ works on it.
    ///
    /// # Errors
    /// The landing itself while READs are outstanding.
    pub fn into_buffer(self: Arc<Self>) -> Result<Buffer, Arc<Self>> {
        Arc::try_unwrap(self).map(|landing| landing.0)
    }

    /// Address, length and local key of a range; `None` when it exceeds the buffer, or connections of the
    /// domain cannot use the buffer.
    pub(crate) fn element_of(
        &self,
        domain: &Domain,
        range: Range<usize>,
    ) -> Option<(u64, u32, u32)> {
        let bytes = self.0.get(range)?;
        Some((
            bytes.as_ptr() as u64,
            u32::try_from(bytes.len()).ok()?,
            domain.key(&self.0)?,
        ))
    }
}
