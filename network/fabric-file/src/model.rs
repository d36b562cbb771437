//! The fabric file's models: plans of training, from which the simulator makes compute times and collectives.

use super::collective::{CollectiveAlgorithm, CollectiveProtocol, GROUP_OF_ALL};
use alloc::borrow::ToOwned;
use alloc::string::String;
use fabric::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{ComputeRate, Ratio, Timespan};

/// The training of a transformer. What ranks compute and exchange follows from its sizes and from how it is
/// divided among them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Model")]
pub struct ModelTable {
    /// Its name, in results.
    pub name: String,
    /// What its layers consist of.
    #[serde(default = "gpt")]
    pub family: ModelFamily,
    /// How many layers it has.
    pub layers: u32,
    /// Numbers of a token between layers.
    pub hidden: u32,
    /// Heads of the attention in each layer.
    pub heads: u32,
    /// Heads of keys and values, which several heads of queries share. Default: as many as `heads`.
    pub kv_heads: Option<u32>,
    /// Numbers of a token within the feed-forward part of a layer, of one expert if there are several.
    /// Default: four times `hidden`.
    pub ffn: Option<u32>,
    /// Tokens that the model knows.
    pub vocabulary: u32,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Sequences that one micro-batch has.
    #[serde(default = "one")]
    pub micro_batch: u32,
    /// Micro-batches that each replica of the model goes through in a step.
    #[serde(default = "one")]
    pub micro_batches: u32,
    /// Bytes of a parameter, and of a number of a token.
    #[serde(default = "two")]
    pub element_bytes: u32,
    /// Bytes of a gradient where it is added up over replicas.
    #[serde(default = "two")]
    pub gradient_bytes: u32,
    /// Floating-point operations that a rank can do in a second.
    pub flops: Option<ComputeRate>,
    /// The part of `flops` that it reaches.
    #[serde(default = "whole")]
    pub efficiency: Ratio,
    /// Time that a rank takes for its part of one layer and one micro-batch, forward; backward is twice as
    /// long. In place of `flops`: embedding and output then take no time.
    pub layer_time: Option<Timespan>,
    /// Whether each layer is computed once more, for its backward pass, with the collectives of its forward
    /// pass: activations are then not kept.
    #[serde(default)]
    pub recompute: bool,
    /// Time of the optimizer at each rank, behind the gradients.
    #[serde(default = "at_once")]
    pub optimizer: Timespan,
    /// Its ranks: a table `[group.NAME]`. `all` is every host unless there is such a table.
    #[serde(default = "all")]
    pub group: String,
    /// How it is divided among the ranks.
    #[serde(default)]
    pub parallel: ParallelTable,
    /// Experts in place of the feed-forward part of each layer.
    #[serde(default)]
    pub experts: ExpertsTable,
    /// What ranks with the same parameters divide among each other (ZeRO): 0 nothing, 1 the state of the
    /// optimizer, 2 gradients too, of each micro-batch, 3 parameters too, which are gathered layer by layer
    /// (FSDP).
    #[serde(default)]
    pub zero: u8,
    /// Layers whose gradients are added up together, as soon as the last micro-batch has gone back through
    /// them.
    #[serde(default = "one")]
    pub bucket_layers: u32,
    /// How the gradients of a bucket travel, where they are all-reduced. Default: `ring`.
    pub algorithm: Option<CollectiveAlgorithm>,
    /// Channels of its collectives.
    #[serde(default = "one")]
    pub channels: u32,
    /// How its collectives are cut into messages.
    #[serde(default = "simple")]
    pub protocol: CollectiveProtocol,
    /// Time at which it begins.
    #[serde(default = "at_once")]
    pub start: Timespan,
    /// How many steps are simulated.
    #[serde(default = "one")]
    pub steps: u32,
}

/// What the layers of a model consist of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModelFamily {
    /// GPT-2 and GPT-3: biases, layer norms, positions that are learned, two matrices in the feed-forward
    /// part, and one matrix for embedding and output.
    Gpt,
    /// Llama, Mistral and Qwen: no biases, RMS norms, rotary positions, three matrices in the feed-forward
    /// part, and a matrix of its own for the output.
    Llama,
}

/// How a model is divided. `tensor` times `context` times `data` times `pipeline` is the number of ranks;
/// they are numbered in this order, so that ranks of one tensor group are neighbours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Parallel")]
pub struct ParallelTable {
    /// Ranks that share each layer's matrices.
    pub tensor: u32,
    /// Whether tensor groups divide the tokens between their matrices, with an all-gather and a
    /// reduce-scatter in place of each all-reduce.
    pub sequence: bool,
    /// Ranks that share each sequence: keys and values go round them while attention is computed.
    pub context: u32,
    /// Replicas, which have micro-batches of their own.
    pub data: u32,
    /// Stages, each of which has as many of the layers, and sends what it computes to the next one.
    pub pipeline: u32,
    /// Ranks of a stage that have different experts: neighbours. They are among those of `tensor`, `context`
    /// and `data`.
    pub expert: u32,
}

/// Experts: each token goes to some of them, as many to each.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Experts")]
pub struct ExpertsTable {
    /// How many each layer has; 1 is a layer without experts.
    pub count: u32,
    /// How many of them a token goes to.
    pub top: u32,
}

impl Default for ParallelTable {
    fn default() -> Self {
        Self {
            tensor: 1,
            sequence: false,
            context: 1,
            data: 1,
            pipeline: 1,
            expert: 1,
        }
    }
}

impl Default for ExpertsTable {
    fn default() -> Self {
        Self { count: 1, top: 1 }
    }
}

fn gpt() -> ModelFamily {
    ModelFamily::Gpt
}

fn one() -> u32 {
    1
}

fn two() -> u32 {
    2
}

fn whole() -> Ratio {
    Ratio(1 << 32)
}

fn at_once() -> Timespan {
    Timespan(Span::ZERO)
}

fn all() -> String {
    GROUP_OF_ALL.to_owned()
}

fn simple() -> CollectiveProtocol {
    CollectiveProtocol::Simple
}
