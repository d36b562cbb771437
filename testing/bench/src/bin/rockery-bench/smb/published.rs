//! The figures of published tests of SMB Direct.

use serde::Serialize;

/// Where the matrix is from. Its figures are in MiB/s.
pub(super) const MATRIX_SOURCE: &str = "a laboratory with 100 Gb/s adapters, 2024: CrystalDiskMark on the \
     server's local drives, and on an SMB Direct share from Windows and from a Linux guest with SR-IOV; SMB \
     without RDMA reached 450 MiB/s there";

/// Where the copies are from. Its figures are in MB/s.
pub(super) const COPIES_SOURCE: &str = "InfiniBand QDR, 2012: files copied over SMB Direct, one and several \
     at once; the server used 3 to 11 % of its processors";

/// Names of the columns of [`matrix`].
pub(crate) const COLUMNS: [&str; 5] = [
    "local, CrystalDiskMark",
    "local, fio",
    "Windows guest, SR-IOV",
    "Linux guest, SR-IOV",
    "Windows, 100G",
];

/// MiB/s of the published matrix: for each column of [`COLUMNS`] read and write.
pub(crate) const fn matrix(row: &str) -> Option<[[f64; 2]; 5]> {
    Some(match row.as_bytes() {
        b"SEQ1M Q8T1" => [
            [13244.0, 7903.0],
            [12900.0, 5041.0],
            [9562.0, 7563.0],
            [10300.0, 5647.0],
            [8860.0, 7822.0],
        ],
        b"SEQ1M Q1T1" => [
            [4652.0, 6320.0],
            [4602.0, 5493.0],
            [2314.0, 2242.0],
            [2527.0, 1999.0],
            [2418.0, 2470.0],
        ],
        b"SEQ128K Q32T1" => [
            [11045.0, 7718.0],
            [9889.0, 1668.0],
            [5903.0, 5560.0],
            [5757.0, 4894.0],
            [9122.0, 7733.0],
        ],
        b"RND4K Q32T16" => [
            [2603.0, 1662.0],
            [1683.0, 1223.0],
            [662.0, 602.0],
            [301.0, 266.0],
            [1425.0, 1244.0],
        ],
        b"RND4K Q32T1" => [
            [524.0, 325.0],
            [410.0, 245.0],
            [178.0, 208.0],
            [181.0, 182.0],
            [690.0, 710.0],
        ],
        b"RND4K Q1T1" => [
            [51.0, 173.0],
            [50.0, 88.0],
            [25.0, 30.0],
            [28.0, 32.0],
            [28.0, 32.0],
        ],
        _ => return None,
    })
}

/// A published copy in MB/s.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Copies {
    pub(crate) read: f64,
    pub(crate) write: f64,
}

/// One file at a time.
pub(crate) const SEQUENTIAL: Copies = Copies {
    read: 626.0,
    write: 502.0,
};
/// Several at once.
pub(crate) const CONCURRENT: Copies = Copies {
    read: 785.0,
    write: 959.0,
};

#[cfg(test)]
mod tests {
    use super::super::super::matrix::MATRIX;

    #[test]
    fn every_row_of_the_matrix_is_published() {
        assert!(
            MATRIX
                .iter()
                .all(|(name, ..)| super::matrix(name).is_some())
        );
        assert_eq!(super::matrix("SEQ2M Q1T1"), None);
    }
}
