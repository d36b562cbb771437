//! Which ranks exchange what: the groups of each kind of parallelism.

/// How a model is divided among ranks: they are numbered tensor first, then context, data and pipeline, as
/// Megatron-LM does (`tp-cp-ep-dp-pp`, `megatron/core/parallel_state.py`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelLayout {
    /// Ranks that share each matrix.
    pub tensor: u32,
    /// Ranks that share each sequence.
    pub context: u32,
    /// Replicas of the model.
    pub data: u32,
    /// Stages, each of which has a part of the layers.
    pub pipeline: u32,
    /// Ranks of a stage among which experts are divided: neighbours.
    pub expert: u32,
}

/// Ranks that exchange something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Within {
    /// Those that share matrices.
    Tensor,
    /// Those that share sequences.
    Context,
    /// Those that have different experts.
    Expert,
    /// A rank and the one of the next stage at its place.
    Forward,
    /// The same, from the next stage back.
    Backward,
    /// Those that have the same parameters.
    Data,
    /// Those that have the same experts.
    ExpertData,
    /// Ranks of the first and the last stage that have the same part of the embedding.
    Ends,
}

/// The end of a pair that a rank is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PairEnd {
    /// The group is no pair, or both do the same.
    Both,
    /// The rank sends.
    Sender,
    /// The rank receives.
    Receiver,
}

impl Within {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Self; 8] = [
        Self::Tensor,
        Self::Context,
        Self::Expert,
        Self::Forward,
        Self::Backward,
        Self::Data,
        Self::ExpertData,
        Self::Ends,
    ];

    /// The word for it in results.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Context => "context",
            Self::Expert => "expert",
            Self::Forward | Self::Backward => "pipeline",
            Self::Data | Self::ExpertData | Self::Ends => "data",
        }
    }

    /// The name of its groups in results, which have queue pairs of their own.
    pub const fn group_word(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::ExpertData => "expert-data",
            Self::Ends => "ends",
            _ => self.word(),
        }
    }

    /// What its groups are.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Tensor | Self::Expert => "neighbours",
            Self::Context => "that share sequences",
            Self::Forward => "from a stage to the next one",
            Self::Backward => "from a stage to the one before",
            Self::Data => "the same place in each replica",
            Self::ExpertData => "with the same experts",
            Self::Ends => "of the first and the last stage",
        }
    }
}

impl ParallelLayout {
    /// Ranks of a stage.
    pub const fn of_stage(&self) -> u64 {
        self.tensor as u64 * self.context as u64 * self.data as u64
    }

    /// Ranks of all stages.
    pub const fn ranks(&self) -> u64 {
        self.of_stage() * self.pipeline as u64
    }

    /// The stage of a rank.
    pub const fn stage(&self, rank: u32) -> u32 {
        rank / self.of_stage() as u32
    }

    /// Ranks of a group.
    pub const fn size(&self, within: Within) -> u32 {
        match within {
            Within::Tensor => self.tensor,
            Within::Context => self.context,
            Within::Expert => self.expert,
            Within::Data => self.context * self.data,
            Within::ExpertData => self.of_stage() as u32 / self.expert,
            Within::Forward | Within::Backward | Within::Ends => 2,
        }
    }

    /// The groups of a kind, each by its ranks, of which a sender is the first.
    pub fn groups(&self, within: Within) -> Vec<Vec<u32>> {
        let stage = self.of_stage() as u32;
        let last = stage * (self.pipeline - 1);
        match within {
            Within::Forward => (0..last).map(|rank| vec![rank, rank + stage]).collect(),
            Within::Backward => (0..last).map(|rank| vec![rank + stage, rank]).collect(),
            Within::Ends if last == 0 => Vec::new(),
            Within::Ends => (0..stage).map(|rank| vec![rank, rank + last]).collect(),
            Within::Tensor | Within::Expert => self.nested(1, self.size(within)),
            Within::Context | Within::Data => self.nested(self.tensor, self.size(within)),
            Within::ExpertData => self.nested(self.expert, self.size(within)),
        }
    }

    /// Groups of so many ranks, each so far from the next.
    fn nested(&self, stride: u32, size: u32) -> Vec<Vec<u32>> {
        let ranks = 0..self.ranks() as u32;
        let first = ranks.filter(|rank| (rank / stride).is_multiple_of(size));
        first
            .map(|first| (0..size).map(|place| first + place * stride).collect())
            .collect()
    }
}

impl PairEnd {
    /// Whether a rank at this place of its group is this end.
    pub const fn is_at(self, place: usize) -> bool {
        match self {
            Self::Both => true,
            Self::Sender => place == 0,
            Self::Receiver => place == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn layout(sizes: [u32; 5]) -> ParallelLayout {
        let [tensor, context, data, pipeline, expert] = sizes;
        ParallelLayout {
            tensor,
            context,
            data,
            pipeline,
            expert,
        }
    }

    const LAYOUTS: [[u32; 5]; 7] = [
        [1, 1, 1, 1, 1],
        [8, 1, 16, 1, 1],
        [2, 1, 3, 4, 1],
        [1, 1, 8, 2, 4],
        [2, 2, 2, 2, 8],
        [3, 5, 1, 1, 15],
        [4, 2, 3, 1, 2],
    ];

    /// The groups of each kind have each rank once, and are of one size; pairs have each boundary once.
    #[test]
    fn groups_divide_the_ranks() {
        for sizes in LAYOUTS {
            let layout = layout(sizes);
            let stage = layout.of_stage() as u32;
            for within in Within::ALL {
                let groups = layout.groups(within);
                let size = layout.size(within) as usize;
                assert!(groups.iter().all(|group| group.len() == size), "{within:?}");
                let mut all: Vec<u32> = groups.iter().flatten().copied().collect();
                all.sort_unstable();
                match within {
                    Within::Forward | Within::Backward => {
                        let boundaries = stage * (layout.pipeline - 1);
                        assert_eq!(groups.len() as u32, boundaries, "{sizes:?}");
                        let mut steps = groups.iter().map(|group| group[0].abs_diff(group[1]));
                        assert!(steps.all(|step| step == stage), "{sizes:?}");
                    }
                    Within::Ends => {
                        let both = if layout.pipeline > 1 { 2 * stage } else { 0 };
                        assert_eq!(all.len() as u32, both, "{sizes:?}");
                    }
                    _ => assert!(all.into_iter().eq(0..layout.ranks() as u32), "{within:?}"),
                }
            }
        }
    }

    /// No group but those between stages has ranks of two.
    #[test]
    fn groups_are_within_stages() {
        for sizes in LAYOUTS {
            let layout = layout(sizes);
            let within = Within::ALL.into_iter().filter(|within| {
                !matches!(within, Within::Forward | Within::Backward | Within::Ends)
            });
            for group in within.flat_map(|within| layout.groups(within)) {
                let stages = group.iter().map(|rank| layout.stage(*rank));
                assert_eq!(stages.clone().min(), stages.max(), "{sizes:?} {group:?}");
            }
        }
    }

    /// Ranks with the same parameters are in other tensor groups each, and those with the same experts in
    /// other expert groups.
    #[test]
    fn ranks_of_one_group_are_in_others_of_the_other_kind() {
        let pairs = [
            (Within::Tensor, Within::Data),
            (Within::Tensor, Within::Context),
            (Within::Expert, Within::ExpertData),
        ];
        for sizes in LAYOUTS {
            for (one, other) in pairs {
                let others = layout(sizes).groups(other);
                for group in layout(sizes).groups(one) {
                    let meet = |other: &Vec<u32>| {
                        let both = group.iter().filter(|rank| other.contains(rank));
                        both.count()
                    };
                    assert!(others.iter().all(|other| meet(other) <= 1), "{sizes:?}");
                }
            }
        }
        let layout = layout([4, 1, 3, 2, 1]);
        assert_eq!(layout.groups(Within::Tensor)[1], [4, 5, 6, 7]);
        assert_eq!(layout.groups(Within::Data)[1], [1, 5, 9]);
        assert_eq!(layout.groups(Within::Forward)[1], [1, 13]);
    }
}
