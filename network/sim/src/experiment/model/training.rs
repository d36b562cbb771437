//! The training of a model: sizes and times of a rank.

use super::layout::ParallelLayout;
use super::transformer::{Parameters, Transformer};
use fabric::Span;
use fabric_file::schema::ModelFamily;

/// A model, how it is divided, and how it is trained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrainingPlan {
    /// The sizes of the model.
    pub transformer: Transformer,
    /// How it is divided among ranks.
    pub layout: ParallelLayout,
    /// Whether tensor groups divide tokens between matrices.
    pub divides_tokens: bool,
    /// What replicas divide besides: the optimizer's state (1), gradients (2), parameters (3).
    pub zero: u8,
    /// Sequences of a micro-batch.
    pub micro_batch: u64,
    /// Micro-batches of a replica in a step.
    pub micro_batches: u32,
    /// Bytes of a parameter or an activation.
    pub element_bytes: u64,
    /// Bytes of a gradient.
    pub gradient_bytes: u64,
    /// How fast a rank computes.
    pub speed: ComputeSpeed,
    /// Whether layers are computed once more for their backward pass.
    pub recompute: bool,
    /// Time of the optimizer.
    pub optimizer: Span,
    /// Layers whose gradients are added up together.
    pub bucket_layers: u32,
    /// Steps that are simulated.
    pub steps: u32,
}

/// How fast a rank computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComputeSpeed {
    /// Operations that it reaches in a second.
    Flops(u128),
    /// Its part of a layer and a micro-batch, forward.
    LayerTime(Span),
}

/// Picoseconds of a second.
const PS: u128 = 1_000_000_000_000;

/// Passes through the network: backward computes the gradients of inputs and of parameters.
pub(super) const BACKWARD: u64 = 2;

/// The part of a time that some of all operations take, to 2^-32 of it.
fn part_of(time: Span, some: u128, all: u128) -> Span {
    let part = (some << 32) / all.max(1);
    Span(((u128::from(time.0) * part) >> 32) as u64)
}

/// Sizes and times of a rank.
impl TrainingPlan {
    /// Tokens of a micro-batch at a rank between layers: those of its context group's part.
    pub const fn tokens(&self) -> u64 {
        self.micro_batch * self.transformer.sequence / self.layout.context as u64
    }

    /// Bytes between two layers, for one micro-batch.
    pub const fn activation_bytes(&self) -> u64 {
        self.tokens() * self.transformer.hidden * self.element_bytes
    }

    /// Bytes from a stage to the next one: each rank of a tensor group sends its part (Narayanan et al.,
    /// 2021, section 4.1).
    pub const fn stage_bytes(&self) -> u64 {
        self.activation_bytes().div_ceil(self.layout.tensor as u64)
    }

    /// Bytes of the keys and values of a rank's tokens, which go round a context group (Liu et al., 2023,
    /// section 3).
    pub const fn key_bytes(&self) -> u64 {
        let keys = self.transformer.keys / self.layout.tensor as u64;
        2 * self.tokens() * keys * self.element_bytes
    }

    /// Bytes of the tokens that a rank sends to experts, itself included: each token to so many.
    pub const fn expert_bytes(&self) -> u64 {
        let tokens = self.tokens() / self.layout.tensor as u64;
        tokens * self.transformer.top * self.transformer.hidden * self.element_bytes
    }

    /// The time of operations that tensor and context groups share.
    fn time_of(&self, flops: u128) -> Span {
        let shared = u128::from(self.layout.tensor) * u128::from(self.layout.context);
        let each = flops.div_ceil(shared);
        match self.speed {
            ComputeSpeed::Flops(rate) => {
                Span(u64::try_from(each.saturating_mul(PS) / rate.max(1)).unwrap_or(u64::MAX))
            }
            ComputeSpeed::LayerTime(_) => Span::ZERO,
        }
    }

    /// The attention of a layer and micro-batch, forward.
    pub fn attention_time(&self) -> Span {
        let flops = self.transformer.attention_flops(self.micro_batch);
        match self.speed {
            ComputeSpeed::Flops(_) => self.time_of(flops),
            ComputeSpeed::LayerTime(whole) => {
                let all = flops + self.transformer.feed_forward_flops(self.micro_batch);
                part_of(whole, flops, all)
            }
        }
    }

    /// The part of it that pairs of tokens take.
    pub(super) fn pairs_time(&self) -> Span {
        let whole = self.transformer.attention_flops(self.micro_batch);
        let pairs = self.transformer.pairs_flops(self.micro_batch);
        part_of(self.attention_time(), pairs, whole)
    }

    /// The feed-forward part of a layer and micro-batch, forward.
    pub fn feed_forward_time(&self) -> Span {
        let flops = self.transformer.feed_forward_flops(self.micro_batch);
        match self.speed {
            ComputeSpeed::Flops(_) => self.time_of(flops),
            ComputeSpeed::LayerTime(whole) => Span(whole.0 - self.attention_time().0),
        }
    }

    /// The output of a micro-batch, forward.
    pub fn output_time(&self) -> Span {
        self.time_of(self.transformer.output_flops(self.micro_batch))
    }

    /// The longest time that a rank computes at once.
    pub fn longest(&self) -> Span {
        let parts = [
            self.attention_time(),
            self.feed_forward_time(),
            self.output_time(),
        ];
        let longest = parts.into_iter().fold(self.optimizer, Ord::max);
        Span(longest.0.saturating_mul(BACKWARD))
    }

    pub(super) const fn tensor(&self) -> u64 {
        self.layout.tensor as u64
    }

    /// Layers of a stage.
    pub const fn layers(&self) -> u32 {
        self.transformer.layers as u32 / self.layout.pipeline
    }

    /// Parameters of a layer at a rank, but for experts.
    pub fn layer_parameters(&self) -> u64 {
        self.transformer.shared().of_rank(self.tensor())
    }

    /// Parameters of a layer's experts at a rank.
    pub const fn expert_parameters(&self) -> u64 {
        self.transformer.expert_parameters() / self.layout.expert as u64
    }

    /// Parameters in front of the first layer and behind the last one that a stage has.
    pub fn end_parameters(&self, stage: u32) -> u64 {
        let mut ends = Parameters::default();
        if stage == 0 {
            ends = ends + self.transformer.embedding();
        }
        if stage + 1 == self.layout.pipeline {
            ends = ends + self.transformer.output();
            if self.has_two_embeddings() {
                ends.divided += self.transformer.vocabulary * self.transformer.hidden;
            }
        }
        ends.of_rank(self.tensor())
    }

    /// Whether the last stage has the matrix of the embedding as well, for its output.
    pub(super) const fn has_two_embeddings(&self) -> bool {
        self.layout.pipeline > 1 && matches!(self.transformer.family, ModelFamily::Gpt)
    }

    /// Buckets of a stage, but for the one that has what else is left.
    pub const fn buckets(&self) -> u32 {
        self.layers() / self.bucket_layers
    }

    /// Parameters of a stage at a rank that are in no bucket, without experts.
    pub fn rest_parameters(&self, stage: u32) -> u64 {
        let left = u64::from(self.layers() % self.bucket_layers);
        left * self.layer_parameters() + self.end_parameters(stage)
    }
}
