//! Compares the tables of symbols with those of the newest rdma-core that was examined.

use std::collections::BTreeSet;
use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("symbols")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether a row of a table matches a symbol: `IBVERBS_PRIVATE_*` matches every private node, and `*` in a
/// name the node's number.
fn stands_for(row: &str, symbol: &str, node: &str) -> bool {
    let mut fields = row.split('\t');
    let (Some(name), Some(of)) = (fields.next(), fields.next()) else {
        return false;
    };
    match of.strip_suffix('*') {
        None => name == symbol && of == node,
        Some(prefix) => node
            .strip_prefix(prefix)
            .is_some_and(|number| name.replace('*', number) == symbol),
    }
}

#[test]
fn every_symbol_of_the_newest_release_is_there() {
    let tables = ["libibverbs.tsv", "librdmacm.tsv", "providers.tsv"].map(read);
    let released = read("rdma-core-65.tsv");
    let rows = released.lines().filter(|line| !line.starts_with('#'));
    let mut looked_at = BTreeSet::new();
    let mut missing = Vec::new();
    for row in rows {
        let fields: Vec<&str> = row.split('\t').collect();
        let [library, symbol, node] = fields[..] else {
            panic!("library, symbol and node, not {row:?}")
        };
        looked_at.insert(library);
        if !tables
            .iter()
            .any(|table| table.lines().any(|row| stands_for(row, symbol, node)))
        {
            missing.push(format!("{library}: {symbol}@{node}"));
        }
    }
    assert_eq!(looked_at.len(), 8, "{looked_at:?}");
    assert!(
        missing.is_empty(),
        "rdma-core 65 has symbols that rockery lacks:\n{}",
        missing.join("\n")
    );
}
