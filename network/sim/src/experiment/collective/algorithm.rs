//! Algorithms of each operation.

use super::FileTable;
use crate::world::CollectiveWork;
use fabric_file::schema::{Collective, CollectiveAlgorithm, CollectiveKind};
use fabric_file::{FileError, Mistake};

/// What a collective does, and the name of its algorithm.
pub(super) fn work(
    table: FileTable<'_>,
    one: &Collective,
    root: u32,
    ranks: u32,
) -> Result<(CollectiveWork, &'static str), FileError> {
    use CollectiveAlgorithm as A;
    use CollectiveKind as K;
    use CollectiveWork as W;
    let usual = match one.kind {
        K::AllToAll | K::Send => A::Direct,
        _ => A::Ring,
    };
    let algorithm = one.algorithm.unwrap_or(usual);
    let work = match (one.kind, algorithm) {
        (K::Barrier, _) if one.algorithm.is_none() => W::Barrier,
        (K::AllReduce, A::Ring) => W::RingAllReduce,
        (K::ReduceScatter, A::Ring) => W::RingReduceScatter,
        (K::AllGather, A::Ring) => W::RingAllGather,
        (K::Broadcast, A::Ring) => W::ChainBroadcast { root },
        (K::Reduce, A::Ring) => W::ChainReduce { root },
        (K::AllReduce, A::Tree) => W::TreeAllReduce { double: false },
        (K::AllReduce, A::DoubleTree) => W::TreeAllReduce { double: true },
        (K::AllReduce, A::Hierarchical) => W::Hierarchical,
        (K::AllReduce | K::ReduceScatter | K::AllGather, A::HalvingDoubling) => {
            let whole = one.kind == K::AllReduce;
            if !whole && !ranks.is_power_of_two() {
                let what = format!("{ranks} ranks are no power of two");
                let instead = "write \"ring\" or \"direct\": without an all-reduce no rank has all that \
                               those beyond the power of two would need";
                return Err(table.mistake(Mistake::Combination, "algorithm", what, instead));
            }
            W::HalvingDoubling {
                reduces: whole || one.kind == K::ReduceScatter,
                gathers: whole || one.kind == K::AllGather,
            }
        }
        (K::AllToAll, A::Direct) => W::DirectAllToAll,
        (K::Send, A::Direct) => W::SendToNext,
        (K::ReduceScatter, A::Direct) => W::DirectReduceScatter,
        (K::AllGather, A::Direct) => W::DirectAllGather,
        (kind, algorithm) => {
            let what = format!("{} has no algorithm {}", kind_name(kind), name(algorithm));
            return Err(table.mistake(Mistake::Combination, "algorithm", what, can_have(kind)));
        }
    };
    let name = match work {
        W::Barrier => "dissemination",
        _ => name(algorithm),
    };
    Ok((work, name))
}

const fn name(algorithm: CollectiveAlgorithm) -> &'static str {
    match algorithm {
        CollectiveAlgorithm::Ring => "ring",
        CollectiveAlgorithm::Tree => "tree",
        CollectiveAlgorithm::DoubleTree => "double-tree",
        CollectiveAlgorithm::HalvingDoubling => "halving-doubling",
        CollectiveAlgorithm::Direct => "direct",
        CollectiveAlgorithm::Hierarchical => "hierarchical",
    }
}

/// The operation as the fabric file has it.
pub const fn kind_name(kind: CollectiveKind) -> &'static str {
    match kind {
        CollectiveKind::AllReduce => "all-reduce",
        CollectiveKind::ReduceScatter => "reduce-scatter",
        CollectiveKind::AllGather => "all-gather",
        CollectiveKind::Broadcast => "broadcast",
        CollectiveKind::Reduce => "reduce",
        CollectiveKind::AllToAll => "all-to-all",
        CollectiveKind::Send => "send",
        CollectiveKind::Barrier => "barrier",
    }
}

const fn can_have(kind: CollectiveKind) -> &'static str {
    match kind {
        CollectiveKind::AllReduce => {
            "write ring, tree, double-tree, halving-doubling or hierarchical"
        }
        CollectiveKind::ReduceScatter | CollectiveKind::AllGather => {
            "write ring, halving-doubling or direct"
        }
        CollectiveKind::Broadcast | CollectiveKind::Reduce => "write ring, or leave it out",
        CollectiveKind::AllToAll | CollectiveKind::Send => "write direct, or leave it out",
        CollectiveKind::Barrier => "leave it out",
    }
}
