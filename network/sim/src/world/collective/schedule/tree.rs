//! Binary trees, and two of them at once, as NCCL builds them (2.30.7, `graph/trees.cc`).

use super::{Peers, Schedule, Stage, StrandId};

/// Up and down.
pub(super) const STRANDS: u32 = 2;

/// A rank's place in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    parent: Option<u32>,
    children: [Option<u32>; 2],
}

/// The place of a rank in the tree in which odd ranks are leaves.
fn place(rank: u32, ranks: u32) -> Place {
    if rank == 0 {
        // The only child of the root is the highest power of two.
        let child = ranks.checked_sub(1).and_then(u32::checked_ilog2);
        return Place {
            parent: None,
            children: [None, child.map(|power| 1 << power)],
        };
    }
    let bit = 1 << rank.trailing_zeros();
    let up = (rank ^ bit) | (bit << 1);
    let mut low = bit >> 1;
    let first = (low > 0).then(|| rank - low);
    while low > 0 && rank + low >= ranks {
        low >>= 1;
    }
    Place {
        parent: Some(if up >= ranks { rank ^ bit } else { up }),
        children: [first, (low > 0).then(|| rank + low)],
    }
}

/// The place of a rank in the second tree: that of the mirrored rank, or of the one before.
fn second_place(rank: u32, ranks: u32) -> Place {
    let there = |rank: u32| match ranks % 2 {
        0 => ranks - 1 - rank,
        _ => (rank + ranks - 1) % ranks,
    };
    let back = |rank: u32| match ranks % 2 {
        0 => ranks - 1 - rank,
        _ => (rank + 1) % ranks,
    };
    let Place { parent, children } = place(there(rank), ranks);
    Place {
        parent: parent.map(back),
        children: children.map(|child| child.map(back)),
    }
}

impl Schedule<'_> {
    fn tree_place(&self, id: StrandId, double: bool) -> Place {
        match double && id.channel % 2 == 1 {
            true => second_place(id.rank, self.ranks),
            false => place(id.rank, self.ranks),
        }
    }

    /// At the root the way up is the way down.
    pub(super) fn tree_rounds(&self, id: StrandId, double: bool) -> u32 {
        let is_root = self.tree_place(id, double).parent.is_none();
        match is_root && id.strand == 1 {
            true => 0,
            false => self.rounds(id.channel),
        }
    }

    pub(super) fn tree_stage(&self, id: StrandId, round: u32, double: bool) -> Stage {
        let place = self.tree_place(id, double);
        let children = place
            .children
            .into_iter()
            .flatten()
            .fold(Peers::NONE, Peers::and);
        let parent = place.parent.map_or(Peers::NONE, Peers::one);
        let is_up = id.strand == 0;
        let (receive, send) = match (is_up, place.parent) {
            (true, None) => (children, children),
            (true, Some(_)) => (children, parent),
            (false, _) => (parent, children),
        };
        let piece = self.chunk_of(id, round);
        Stage {
            receive,
            received: piece,
            send,
            sent: piece,
            passes_on: !receive.is_empty() && !send.is_empty(),
            reduces: is_up,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parents(ranks: u32, place: fn(u32, u32) -> Place) -> Vec<Option<u32>> {
        (0..ranks).map(|rank| place(rank, ranks).parent).collect()
    }

    /// NCCL's trees for 8 and for 5 nodes.
    #[test]
    fn trees_are_those_of_nccl() {
        let some = |parents: &[i32]| -> Vec<Option<u32>> {
            parents
                .iter()
                .map(|rank| u32::try_from(*rank).ok())
                .collect()
        };
        assert_eq!(parents(8, place), some(&[-1, 2, 4, 2, 0, 6, 4, 6]));
        assert_eq!(parents(8, second_place), some(&[1, 3, 1, 7, 5, 3, 5, -1]));
        assert_eq!(parents(5, place), some(&[-1, 2, 4, 2, 0]));
        assert_eq!(parents(5, second_place), some(&[1, -1, 3, 0, 3]));
    }

    #[test]
    fn a_child_has_its_parent_and_inner_ranks_are_leaves_of_the_other_tree() {
        for ranks in 2..70 {
            for place in [place, second_place] {
                let roots = (0..ranks).filter(|rank| place(*rank, ranks).parent.is_none());
                assert_eq!(roots.count(), 1, "{ranks} ranks");
                for rank in 0..ranks {
                    for child in place(rank, ranks).children.into_iter().flatten() {
                        assert_eq!(place(child, ranks).parent, Some(rank), "{ranks} ranks");
                    }
                    let parent = place(rank, ranks).parent;
                    let is_child = parent
                        .is_none_or(|parent| place(parent, ranks).children.contains(&Some(rank)));
                    assert!(is_child, "{rank} of {ranks}");
                }
            }
            let inner = |place: fn(u32, u32) -> Place, rank| {
                place(rank, ranks).children.iter().flatten().count() == 2
            };
            let both = (0..ranks).filter(|rank| inner(place, *rank) && inner(second_place, *rank));
            assert!(ranks % 2 == 1 || both.count() == 0, "{ranks} ranks");
        }
    }
}
