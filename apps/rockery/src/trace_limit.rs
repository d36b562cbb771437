//! Values of `--trace-limit`: the most bytes of a trace.

use ::trace::layout::{CHUNK_BYTES, HEADER_BYTES};
use units::{Quantity, Size};

/// Bytes with a unit, with room for a chunk at least.
pub(crate) fn limit(text: &str) -> Result<u64, String> {
    let least = (HEADER_BYTES + CHUNK_BYTES) as u64;
    let bytes = Size::parse(text).ok_or_else(|| format!("write {}", Size::GRAMMAR))?;
    match bytes.0 >= least {
        true => Ok(bytes.0),
        false => Err(format!("a trace has {least} bytes at least")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_room_for_a_chunk() {
        assert_eq!(limit("64MiB"), Ok(64 << 20));
        assert!(limit("1kB").unwrap_err().contains("327680 bytes at least"));
        assert!(limit("many").unwrap_err().contains("MiB"));
    }
}
