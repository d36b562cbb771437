//! An order in which each collective comes after all that it waits for.

use super::groups::Groups;
use super::jobs::Described;
use fabric_file::{Document, FileError, Mistake};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Names of a circle that are listed at most.
const LISTED: usize = 8;

/// The order: those that wait for nothing by their place in the file (Kahn, 1962).
pub(super) fn order(document: &Document, all: &[Described]) -> Result<Vec<usize>, FileError> {
    let mut waits: Vec<usize> = all.iter().map(|one| one.after.len()).collect();
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (index, one) in all.iter().enumerate() {
        for before in &one.after {
            waiting[*before].push(index);
        }
    }
    let free = (0..all.len()).filter(|index| waits[*index] == 0);
    let mut free: BinaryHeap<Reverse<usize>> = free.map(Reverse).collect();
    let mut order = Vec::with_capacity(all.len());
    while let Some(Reverse(index)) = free.pop() {
        order.push(index);
        for after in &waiting[index] {
            waits[*after] -= 1;
            if waits[*after] == 0 {
                free.push(Reverse(*after));
            }
        }
    }
    match (0..all.len()).find(|index| waits[*index] > 0) {
        None => Ok(order),
        Some(stuck) => Err(circle(document, all, &waits, stuck)),
    }
}

/// The circle that one of those that are left leads to.
fn circle(document: &Document, all: &[Described], waits: &[usize], stuck: usize) -> FileError {
    let before = |index: usize| {
        let mut after = all[index].after.iter();
        after.find(|before| waits[**before] > 0).copied()
    };
    let mut seen = Vec::new();
    let mut place = vec![None; all.len()];
    let mut at = Some(stuck);
    while let Some(index) = at.filter(|index| place[*index].is_none()) {
        place[index] = Some(seen.len());
        seen.push(index);
        at = before(index);
    }
    let first = at.and_then(|index| place[index]).unwrap_or(0);
    let round = &seen[first..];
    let mut names: Vec<&str> = round
        .iter()
        .take(LISTED)
        .map(|index| all[*index].name.as_str())
        .collect();
    if round.len() > LISTED {
        names.push("…");
    }
    names.extend(round.first().map(|index| all[*index].name.as_str()));
    let what = format!("each waits for the next: {}", names.join(", "));
    let field = format!(
        "{}.after",
        all[round.first().copied().unwrap_or(stuck)].path
    );
    document.mistake(
        Mistake::Combination,
        &field,
        what,
        "let one of them not wait",
    )
}

/// Each waits for what some host of its own takes part in: no other one knows when it is over.
pub(super) fn check_hosts(
    document: &Document,
    all: &[Described],
    groups: &Groups<'_>,
) -> Result<(), FileError> {
    for one in all.iter().filter(|one| !one.after.is_empty()) {
        let own: BTreeSet<u32> = groups.hosts(one.job.group).iter().copied().collect();
        let knows = |before: &&usize| {
            let mut hosts = groups.hosts(all[**before].job.group).iter();
            hosts.any(|host| own.contains(host))
        };
        if let Some(before) = one.after.iter().find(|before| !knows(before)) {
            let before = &all[*before].name;
            let what = format!("no host of \"{}\" takes part in \"{before}\"", one.name);
            let instead = "only packets tell a host that something is over elsewhere: add a [[transfer]] \
                           from one of those hosts to one of these, and wait for that";
            let field = format!("{}.after", one.path);
            return Err(document.mistake(Mistake::Combination, &field, what, instead));
        }
    }
    Ok(())
}
