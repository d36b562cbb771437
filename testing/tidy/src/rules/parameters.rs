//! Parameters of functions. A tuple that is taken apart in the list of parameters hides arguments:
//! no caller sees their order. A struct names them.

use crate::rust::Tokens;
use crate::{Finding, Tree};

/// Functions that have such parameters all the same: file and function. Entries may go, none may come.
pub const TUPLES: &[(&str, &str)] = &[
    // core
    ("core/fabric/src/schedule.rs", "choose"),
    ("core/fabric/src/switch.rs", "drop_at_queue"),
    ("core/link/src/sys/udp.rs", "bind_to"),
    ("core/link/src/sys/udp.rs", "send"),
    ("core/rnic/src/cm/ids.rs", "new"),
    ("core/rnic/src/device/table.rs", "add_proxy"),
    ("core/rnic/src/qp/completer/mod.rs", "place"),
    ("core/rnic/src/qp/completer/mod.rs", "store"),
    ("core/rnic/src/qp/proxy.rs", "handle_forwarded_request"),
    ("core/rnic/src/qp/responder/execute.rs", "deliver"),
    // device
    ("device/host/src/lab.rs", "hello"),
    ("device/host/src/shm/direct.rs", "execute"),
    ("device/host/src/shm/direct.rs", "execute_run"),
    ("device/host/src/shm/direct.rs", "execute_shared"),
    ("device/host/src/shm/rings.rs", "fetch_ahead"),
    ("device/host/src/shm/rings.rs", "handle_reference"),
    ("device/rdma/src/sys/connection.rs", "post"),
    ("device/rdma/src/sys/connection.rs", "read_part"),
    ("device/rdma/src/sys/connection.rs", "write_shared"),
    ("device/rdmacm/src/connect.rs", "depths"),
    ("device/rsocket/src/iomap.rs", "map"),
    ("device/verbs/src/dmabuf.rs", "register"),
    ("device/verbs/src/post.rs", "send"),
    ("device/verbs/src/qp_create.rs", "boxed"),
    ("device/verbs/src/qp_create.rs", "create"),
    ("device/verbs/src/srq.rs", "create"),
    // testing
    ("testing/torture/src/host.rs", "execute"),
];

/// Parameters that are tuples, and entries of the list that are no longer needed.
pub fn tuples(tree: &Tree) -> Vec<Finding> {
    tuples_but_for(tree, TUPLES)
}

fn tuples_but_for(tree: &Tree, known: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_needed = vec![false; known.len()];
    for file in tree.with_extension(&["rs"]) {
        let Ok(tokens) = Tokens::of(&file.text) else {
            findings.push(file.finding(0, "is not Rust"));
            continue;
        };
        for (function, line) in tokens.tuple_parameters() {
            let entry = (file.path.as_str(), function.as_str());
            match known.iter().position(|known| *known == entry) {
                Some(entry) => is_needed[entry] = true,
                None => {
                    let what = format!("`{function}` has a tuple as parameter: name its parts");
                    findings.push(file.finding(line, what));
                }
            }
        }
    }
    for ((path, function), _) in known.iter().zip(is_needed).filter(|(_, needed)| !needed) {
        findings.push(Finding {
            path: (*path).to_owned(),
            line: 0,
            what: format!("`{function}` has no tuple as parameter: take it off the list"),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_found_in_lists_of_parameters_alone() {
        let text =
            "fn f(&self, (a, b): (u8, u8)) { g(|(c, d): (u8, u8)| c); let (e, h): (u8, u8) = x; }";
        let tree = Tree::of(&[("a.rs", text)]);
        assert_eq!(tuples_but_for(&tree, &[]).len(), 1);
        assert_eq!(tuples_but_for(&tree, &[("a.rs", "f")]).len(), 0);
        assert_eq!(
            tuples_but_for(&tree, &[("a.rs", "f"), ("a.rs", "g")]).len(),
            1
        );
    }
}
