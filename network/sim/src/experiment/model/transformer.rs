//! A transformer in numbers: parameters, floating-point operations and bytes of its parts. Formulas of whole
//! numbers alone; where they come from stands with each.

use fabric_file::schema::ModelFamily;

/// The sizes of a transformer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transformer {
    /// What its layers consist of.
    pub family: ModelFamily,
    /// How many layers it has.
    pub layers: u64,
    /// Numbers of a token between layers.
    pub hidden: u64,
    /// Numbers of a token's keys, and as many of its values: those of all their heads.
    pub keys: u64,
    /// Numbers of a token within the feed-forward part, of one expert if there are several.
    pub ffn: u64,
    /// Experts of a layer; one, or none, is the feed-forward part of all tokens.
    pub experts: u64,
    /// Experts that each token goes to.
    pub top: u64,
    /// Tokens that it knows.
    pub vocabulary: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
}

/// Parameters of a part, by what tensor parallelism does with them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Parameters {
    /// Ranks of a tensor group have different ones (Shoeybi et al., 2019, section 3).
    pub divided: u64,
    /// All of them have these.
    pub copied: u64,
}

impl Parameters {
    /// All of the part.
    pub const fn all(self) -> u64 {
        self.divided + self.copied
    }

    /// Those of one of so many ranks.
    pub const fn of_rank(self, tensor: u64) -> u64 {
        self.divided.div_ceil(tensor) + self.copied
    }
}

impl std::ops::Add for Parameters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            divided: self.divided + other.divided,
            copied: self.copied + other.copied,
        }
    }
}

impl Transformer {
    /// Attention: the matrices of queries, keys and values, and the one behind; with biases in a GPT. Those
    /// of the first three are divided, the last one's is added once.
    pub const fn attention(&self) -> Parameters {
        let (h, k) = (self.hidden, self.keys);
        match self.family {
            ModelFamily::Gpt => Parameters {
                divided: h * (h + 2 * k) + h + 2 * k + h * h,
                copied: h,
            },
            ModelFamily::Llama => Parameters {
                divided: 2 * h * h + 2 * h * k,
                copied: 0,
            },
        }
    }

    /// Matrices of the feed-forward part, each of `hidden` by `ffn`.
    pub const fn matrices(&self) -> u64 {
        match self.family {
            ModelFamily::Gpt => 2,
            ModelFamily::Llama => 3,
        }
    }

    /// The feed-forward part, of one expert if there are several.
    pub const fn feed_forward(&self) -> Parameters {
        let (h, f) = (self.hidden, self.ffn);
        match self.family {
            ModelFamily::Gpt => Parameters {
                divided: 2 * h * f + f,
                copied: h,
            },
            ModelFamily::Llama => Parameters {
                divided: 3 * h * f,
                copied: 0,
            },
        }
    }

    /// The norms of a layer: two, each of a scale for each number, and in a GPT of a shift.
    pub const fn norms(&self) -> Parameters {
        let copied = match self.family {
            ModelFamily::Gpt => 4 * self.hidden,
            ModelFamily::Llama => 2 * self.hidden,
        };
        Parameters { divided: 0, copied }
    }

    /// What decides which experts a token goes to: a number for each, of which there is no bias.
    pub const fn router(&self) -> Parameters {
        Parameters {
            divided: 0,
            copied: if self.experts > 1 {
                self.hidden * self.experts
            } else {
                0
            },
        }
    }

    /// What all tokens go through in a layer. With `keys` = h and `ffn` = 4h, a GPT's without experts is
    /// 12h² + 13h (Narayanan et al., 2021, equation 2).
    pub fn shared(&self) -> Parameters {
        let all = self.attention() + self.norms() + self.router();
        match self.experts {
            0 | 1 => all + self.feed_forward(),
            _ => all,
        }
    }

    /// Parameters of all experts of a layer. Those of one are not divided.
    pub const fn expert_parameters(&self) -> u64 {
        match self.experts {
            0 | 1 => 0,
            experts => experts * self.feed_forward().all(),
        }
    }

    /// All parameters of a layer.
    pub fn layer(&self) -> u64 {
        self.shared().all() + self.expert_parameters()
    }

    /// In front of the first layer: the tokens' vectors, and in a GPT those of positions.
    pub const fn embedding(&self) -> Parameters {
        Parameters {
            divided: self.vocabulary * self.hidden,
            copied: match self.family {
                ModelFamily::Gpt => self.sequence * self.hidden,
                ModelFamily::Llama => 0,
            },
        }
    }

    /// Behind the last layer: a norm, and the matrix of the output, which in a GPT is that of the embedding.
    pub const fn output(&self) -> Parameters {
        match self.family {
            ModelFamily::Gpt => Parameters {
                divided: 0,
                copied: 2 * self.hidden,
            },
            ModelFamily::Llama => Parameters {
                divided: self.vocabulary * self.hidden,
                copied: self.hidden,
            },
        }
    }

    /// Parameters of the whole model.
    pub fn parameters(&self) -> u64 {
        self.layers * self.layer() + self.embedding().all() + self.output().all()
    }

    /// Floating-point operations of the attention of a layer for so many sequences, forward: two for each
    /// parameter of a matrix and token, and four for each number of each pair of tokens (Narayanan et al.,
    /// 2021, appendix; masked pairs are counted, as there).
    pub fn attention_flops(&self, sequences: u64) -> u128 {
        let [h, k, s] = [self.hidden, self.keys, self.sequence].map(u128::from);
        let tokens = u128::from(sequences) * s;
        2 * tokens * (2 * h * h + 2 * h * k) + self.pairs_flops(sequences)
    }

    /// Those of them for pairs of tokens.
    pub fn pairs_flops(&self, sequences: u64) -> u128 {
        let [h, s] = [self.hidden, self.sequence].map(u128::from);
        4 * u128::from(sequences) * s * s * h
    }

    /// The same of the feed-forward part: of as many experts as a token goes to.
    pub fn feed_forward_flops(&self, sequences: u64) -> u128 {
        let [h, f, s] = [self.hidden, self.ffn, self.sequence].map(u128::from);
        let top = u128::from(self.top.max(1));
        2 * u128::from(sequences) * s * top * u128::from(self.matrices()) * h * f
    }

    /// The same of the output: each token with each that the model knows.
    pub fn output_flops(&self, sequences: u64) -> u128 {
        let [h, v, s] = [self.hidden, self.vocabulary, self.sequence].map(u128::from);
        2 * u128::from(sequences) * s * h * v
    }

    /// Operations for so many sequences, forward and backward, which has twice as many as forward.
    pub fn training_flops(&self, sequences: u64) -> u128 {
        let layer = self.attention_flops(sequences) + self.feed_forward_flops(sequences);
        3 * (u128::from(self.layers) * layer + self.output_flops(sequences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Megatron's models: tokens of GPT-2, padded, and sequences of 2,048.
    fn gpt(layers: u64, hidden: u64) -> Transformer {
        Transformer {
            family: ModelFamily::Gpt,
            layers,
            hidden,
            keys: hidden,
            ffn: 4 * hidden,
            vocabulary: 51_200,
            sequence: 2_048,
            experts: 1,
            top: 1,
        }
    }

    fn llama(layers: u64, hidden: u64, keys: u64, ffn: u64, vocabulary: u64) -> Transformer {
        Transformer {
            family: ModelFamily::Llama,
            layers,
            hidden,
            keys,
            ffn,
            vocabulary,
            sequence: 4_096,
            experts: 1,
            top: 1,
        }
    }

    /// Narayanan et al., 2021, table 1: billions of parameters, with one decimal.
    #[test]
    fn models_of_megatron_have_as_many_parameters_as_published() {
        let published = [
            (24, 2_304, 17),
            (30, 3_072, 36),
            (36, 4_096, 75),
            (40, 6_144, 184),
            (48, 8_192, 391),
            (60, 10_240, 761),
            (80, 12_288, 1_456),
            (96, 16_384, 3_101),
            (105, 20_480, 5_296),
            (128, 25_600, 10_080),
        ];
        for (layers, hidden, tenths) in published {
            let parameters = gpt(layers, hidden).parameters();
            assert_eq!((parameters + 50_000_000) / 100_000_000, tenths, "{layers}");
        }
    }

    /// GPT-3 (Brown et al., 2020, table 2.1): 175.0 and 13.0 billion, from there rounded to three digits.
    #[test]
    fn gpt_3_has_as_many_parameters_as_published() {
        let of = |layers, hidden| {
            let model = Transformer {
                vocabulary: 50_257,
                ..gpt(layers, hidden)
            };
            model.parameters()
        };
        assert_eq!(of(96, 12_288), 174_604_259_328);
        assert_eq!((of(96, 12_288) + 500_000_000) / 1_000_000_000, 175);
        assert_eq!((of(40, 5_140) + 50_000_000) / 100_000_000, 130);
    }

    /// Of the files that Meta and Mistral have published: the sums of their tensors' elements.
    #[test]
    fn llamas_have_as_many_parameters_as_published() {
        let second = llama(32, 4_096, 4_096, 11_008, 32_000);
        assert_eq!(second.parameters(), 6_738_415_616);
        let third = llama(32, 4_096, 1_024, 14_336, 128_256);
        assert_eq!(third.parameters(), 8_030_261_248);
        let mixtral = Transformer {
            experts: 8,
            top: 2,
            ..llama(32, 4_096, 1_024, 14_336, 32_000)
        };
        assert_eq!(mixtral.parameters(), 46_702_792_704);
    }

    /// Narayanan et al., 2021, equation 3, of which a quarter is what recomputing adds:
    /// 96·B·s·l·h²·(1 + s/6h + V/16lh).
    #[test]
    fn operations_are_those_of_the_closed_form() {
        for (layers, hidden) in [(24, 2_304), (96, 12_288)] {
            let model = gpt(layers, hidden);
            let (b, s, l, h, v) = (
                8,
                2_048_u128,
                u128::from(layers),
                u128::from(hidden),
                51_200,
            );
            let once = 72 * b * s * l * h * h + 12 * b * s * s * l * h + 6 * b * s * h * v;
            assert_eq!(model.training_flops(8), once);
        }
    }

    /// What of a layer is divided comes back together, and what is copied stays whole.
    #[test]
    fn parts_of_ranks_are_all_parameters() {
        let models = [gpt(24, 2_304), llama(32, 4_096, 1_024, 14_336, 128_256)];
        for layer in models.map(|model| model.shared()) {
            for tensor in [1, 2, 4, 8] {
                let all = tensor * layer.of_rank(tensor) - (tensor - 1) * layer.copied;
                assert_eq!(all, layer.all(), "{tensor}");
            }
        }
        let h = 2_304;
        assert_eq!(gpt(24, h).layer(), 12 * h * h + 13 * h);
    }
}
