//! Free memory of the allocator, which glibc keeps: each of its arenas gives back only what lies at its end.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Freed bytes after which the allocator is asked to give memory back: doing so takes some milliseconds for
/// each 100 MB, during which other threads may wait for the allocator.
const TRIM_BYTES: usize = 32 << 20;

static FREED: AtomicUsize = AtomicUsize::new(0);

/// Notes that about this many bytes in small buffers were freed, as by a connection that ended. The free
/// memory of the process goes back to the system from time to time.
pub fn note_freed(bytes: usize) {
    let before = FREED.fetch_add(bytes, Ordering::Relaxed);
    if before / TRIM_BYTES != before.wrapping_add(bytes) / TRIM_BYTES {
        trim();
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: no pointers; the allocator locks its arenas.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        os::page::page_size() as usize * status.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    }

    /// A buffer at the end of the heap keeps glibc from giving back those before it.
    #[test]
    fn freed_memory_goes_back_to_the_system() {
        const COUNT: usize = 16_384;
        let mut buffers: Vec<Buffer> = (0..COUNT).map(|_| Buffer::zeroed(8192)).collect();
        buffers.iter_mut().for_each(|buffer| buffer.fill(1));
        let last = buffers.pop();
        let before = resident();
        drop(buffers);
        note_freed(COUNT * 8192);
        assert!(
            resident() + COUNT * 8192 / 2 < before,
            "{} MB of {} MB",
            resident() >> 20,
            before >> 20
        );
        drop(last);
    }
}
