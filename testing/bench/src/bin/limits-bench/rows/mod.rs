//! All rows of the table, by what they measure.

mod connections;
mod live;
mod network;
mod queue_pairs;
mod same_host;
mod storage;

use crate::row::Row;

/// All rows, in the table's order.
pub(crate) fn all() -> Vec<Row> {
    let all = [
        network::rows(),
        queue_pairs::rows(),
        same_host::rows(),
        connections::rows(),
        storage::rows(),
        live::rows(),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_name_has_one_row() {
        let rows = all();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(
            rows.iter().all(|row| !row.name.contains('|')),
            "a name is a cell of a table"
        );
    }
}
