//! Functions that the tests of this crate share: captures from and to files.

use std::path::{Path, PathBuf};
use std::{fs, process};

/// Where the golden captures lie.
pub(crate) fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/data/captures")
}

/// The frames of a classic pcap file written on a little-endian machine, as all of ours are.
pub(crate) fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert!(
        matches!(word(0), 0xa1b2_c3d4 | 0xa1b2_3c4d),
        "{}: not a little-endian pcap",
        path.display()
    );
    assert_eq!(word(20), 1, "{}: not Ethernet", path.display());
    let mut frames = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let (captured, original) = (word(at + 8), word(at + 12));
        assert_eq!(
            captured,
            original,
            "{}: a packet is cut short",
            path.display()
        );
        frames.push(bytes[at + 16..at + 16 + captured as usize].to_vec());
        at += 16 + captured as usize;
    }
    frames
}

/// A capture file that is removed again.
pub(crate) struct TemporaryPcap(pub(crate) PathBuf);

impl TemporaryPcap {
    /// Writes `frames`, one microsecond apart.
    pub(crate) fn write(name: &str, frames: &[Vec<u8>]) -> Self {
        let words = |bytes: &mut Vec<u8>, words: &[u32]| {
            words
                .iter()
                .for_each(|word| bytes.extend(word.to_le_bytes()));
        };
        let mut bytes = Vec::new();
        words(&mut bytes, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1]);
        for (index, frame) in frames.iter().enumerate() {
            let length = frame.len() as u32;
            words(&mut bytes, &[1, index as u32, length, length]);
            bytes.extend(frame);
        }
        let path = std::env::temp_dir().join(format!("rockery-{name}-{}.pcap", process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryPcap {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}
