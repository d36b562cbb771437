//! A training step of a rank: what it computes and exchanges, in order.

use super::builder::{Exchange, ProgramBuilder, Written};
use super::layout::{PairEnd, Within};
use super::training::{BACKWARD, TrainingPlan};
use super::transformer::Parameters;
use fabric::Span;
use fabric_file::schema::CollectiveKind;

/// What each stage does in a step.
impl TrainingPlan {
    /// What a rank of a stage does in all steps.
    pub fn written(&self, stage: u32) -> Written {
        let mut builder = ProgramBuilder::default();
        let writer = StageWriter { plan: self, stage };
        builder.repeat(self.steps, |builder| {
            writer.micro_batches(builder);
            writer.finish(builder);
            builder.end_step();
        });
        builder.written()
    }
}

/// Writes the program of a stage.
struct StageWriter<'a> {
    plan: &'a TrainingPlan,
    stage: u32,
}

/// One forward, one backward: a stage goes forward with as many micro-batches as there are stages behind it,
/// then backward and forward in turns (Narayanan et al., 2021, section 2.2). What is sent is waited for, as
/// Megatron-LM does without `overlap_p2p_comm`.
impl StageWriter<'_> {
    fn micro_batches(&self, builder: &mut ProgramBuilder) {
        let batches = self.plan.micro_batches;
        let behind = self.plan.layout.pipeline - 1 - self.stage;
        let ahead = behind.min(batches);
        builder.repeat(ahead, |builder| {
            self.together(builder, [self.received_on(), None]);
            self.forward(builder);
            self.together(builder, [self.sent_on(), None]);
        });
        if let Some(turns) = (batches - ahead).checked_sub(1) {
            self.together(builder, [self.received_on(), None]);
            builder.repeat(turns, |builder| {
                self.forward(builder);
                self.together(builder, [self.sent_on(), self.received_back()]);
                self.backward(builder, false);
                self.together(builder, [self.sent_back(), self.received_on()]);
            });
            self.forward(builder);
            self.together(builder, [self.sent_on(), self.received_back()]);
            self.backward(builder, ahead == 0);
            self.together(builder, [self.sent_back(), None]);
        }
        for (times, is_last) in [(ahead.saturating_sub(1), false), (ahead.min(1), true)] {
            builder.repeat(times, |builder| {
                self.together(builder, [self.received_back(), None]);
                self.backward(builder, is_last);
                self.together(builder, [self.sent_back(), None]);
            });
        }
    }

    /// Begins exchanges at once, and waits for all.
    fn together(&self, builder: &mut ProgramBuilder, exchanges: [Option<Exchange>; 2]) {
        exchanges
            .into_iter()
            .flatten()
            .for_each(|one| builder.begin(one));
        exchanges
            .into_iter()
            .flatten()
            .for_each(|one| builder.wait(one, 0));
    }

    fn between(&self, name: &'static str, within: Within, end: PairEnd) -> Exchange {
        Exchange {
            name,
            kind: None,
            within,
            bytes: self.plan.stage_bytes(),
            end,
        }
    }

    fn received_on(&self) -> Option<Exchange> {
        let exchange = self.between("forward", Within::Forward, PairEnd::Receiver);
        (self.stage > 0).then_some(exchange)
    }

    fn sent_on(&self) -> Option<Exchange> {
        let exchange = self.between("forward", Within::Forward, PairEnd::Sender);
        (!self.is_last()).then_some(exchange)
    }

    fn received_back(&self) -> Option<Exchange> {
        let exchange = self.between("backward", Within::Backward, PairEnd::Receiver);
        (!self.is_last()).then_some(exchange)
    }

    fn sent_back(&self) -> Option<Exchange> {
        let exchange = self.between("backward", Within::Backward, PairEnd::Sender);
        (self.stage > 0).then_some(exchange)
    }

    const fn is_last(&self) -> bool {
        self.stage + 1 == self.plan.layout.pipeline
    }
}

/// A micro-batch through a stage.
impl StageWriter<'_> {
    fn forward(&self, builder: &mut ProgramBuilder) {
        if self.gathers() {
            builder.call(self.parameters("parameters-rest", self.plan.end_parameters(self.stage)));
        }
        if self.stage == 0 {
            self.scatter(builder);
        }
        self.each_layer(builder, |builder| self.layer_forward(builder));
        if self.is_last() {
            if self.plan.divides_tokens {
                self.gather(builder);
            }
            builder.compute(self.plan.output_time());
        }
    }

    /// Backward; `is_last`: gradients are whole then.
    fn backward(&self, builder: &mut ProgramBuilder, is_last: bool) {
        if self.is_last() {
            builder.compute(Span(self.plan.output_time().0.saturating_mul(BACKWARD)));
            self.scatter(builder);
        }
        let adds_up = is_last || self.plan.zero >= 2;
        let buckets = if adds_up { self.plan.buckets() } else { 0 };
        if self.gathers() {
            self.each_layer(builder, |builder| {
                self.layer_backward(builder);
                self.begin_bucket(builder);
            });
        } else {
            builder.repeat(buckets, |builder| {
                builder.repeat(self.plan.bucket_layers, |builder| {
                    self.layer_backward(builder)
                });
                self.begin_bucket(builder);
            });
            let left = self.plan.layers() - buckets * self.plan.bucket_layers;
            builder.repeat(left, |builder| self.layer_backward(builder));
        }
        if self.stage == 0 && self.plan.divides_tokens {
            self.gather(builder);
        }
        if adds_up {
            self.rest()
                .into_iter()
                .flatten()
                .for_each(|one| builder.begin(one));
        }
    }

    /// Goes through all layers; where their parameters are divided, with those of the next one under way.
    fn each_layer(&self, builder: &mut ProgramBuilder, layer: impl Fn(&mut ProgramBuilder)) {
        let layers = self.plan.layers();
        if !self.gathers() {
            return builder.repeat(layers, |builder| layer(builder));
        }
        let parameters = self.parameters("parameters", self.plan.layer_parameters());
        builder.begin(parameters);
        builder.repeat(layers - 1, |builder| {
            builder.begin(parameters);
            builder.wait(parameters, 1);
            layer(builder);
        });
        builder.wait(parameters, 0);
        layer(builder);
    }

    /// Whether each layer's parameters are gathered for it (Rajbhandari et al., 2020, section 5.3).
    const fn gathers(&self) -> bool {
        self.plan.zero >= 3 && self.plan.layout.size(Within::Data) > 1
    }

    fn layer_forward(&self, builder: &mut ProgramBuilder) {
        self.attention(builder, 1);
        self.feed_forward(builder, 1);
    }

    fn layer_backward(&self, builder: &mut ProgramBuilder) {
        if self.plan.recompute {
            self.layer_forward(builder);
        }
        self.feed_forward(builder, BACKWARD);
        self.attention(builder, BACKWARD);
    }

    /// The input of half a layer is whole at each rank of a tensor group, and its output is added up.
    fn attention(&self, builder: &mut ProgramBuilder, passes: u64) {
        if self.plan.divides_tokens {
            self.gather(builder);
        }
        let whole = self.plan.attention_time().0.saturating_mul(passes);
        let others = u64::from(self.plan.layout.context) - 1;
        let pairs = self.plan.pairs_time().0.saturating_mul(passes) / (others + 1);
        if others > 0 {
            let keys = match passes {
                1 => self.keys("keys", 1),
                _ => self.keys("keys-backward", 2),
            };
            builder.repeat(others as u32, |builder| {
                builder.begin(keys);
                builder.compute(Span(pairs));
                builder.wait(keys, 0);
            });
        }
        // The gradients of keys and values go one rank further than these: home.
        let home = (others > 0 && passes > 1).then(|| self.keys("keys-home", 1));
        home.into_iter().for_each(|keys| builder.begin(keys));
        builder.compute(Span(whole - others * pairs));
        home.into_iter().for_each(|keys| builder.wait(keys, 0));
        self.scatter(builder);
    }

    fn feed_forward(&self, builder: &mut ProgramBuilder, passes: u64) {
        let time = Span(self.plan.feed_forward_time().0.saturating_mul(passes));
        if self.plan.transformer.experts > 1 {
            self.to_experts(builder);
            builder.compute(time);
            return self.to_experts(builder);
        }
        if self.plan.divides_tokens {
            self.gather(builder);
        }
        builder.compute(time);
        self.scatter(builder);
    }

    /// Tokens go to their experts, or come back from them.
    fn to_experts(&self, builder: &mut ProgramBuilder) {
        if self.plan.layout.expert > 1 {
            builder.call(Exchange {
                name: "tokens",
                kind: Some(CollectiveKind::AllToAll),
                within: Within::Expert,
                bytes: self.plan.expert_bytes(),
                end: PairEnd::Both,
            });
        }
    }

    fn keys(&self, name: &'static str, times: u64) -> Exchange {
        Exchange {
            name,
            kind: Some(CollectiveKind::Send),
            within: Within::Context,
            bytes: self.plan.key_bytes() * times,
            end: PairEnd::Both,
        }
    }

    /// Adds up what each rank of a tensor group has a summand of; where tokens are divided, each gets those
    /// of its own.
    fn scatter(&self, builder: &mut ProgramBuilder) {
        let (name, kind) = match self.plan.divides_tokens {
            true => ("tensor-scatter", CollectiveKind::ReduceScatter),
            false => ("tensor", CollectiveKind::AllReduce),
        };
        self.activations(builder, name, kind);
    }

    /// Gives each rank of a tensor group the tokens of the others.
    fn gather(&self, builder: &mut ProgramBuilder) {
        self.activations(builder, "tensor-gather", CollectiveKind::AllGather);
    }

    fn activations(&self, builder: &mut ProgramBuilder, name: &'static str, kind: CollectiveKind) {
        if self.plan.layout.tensor > 1 {
            builder.call(Exchange {
                name,
                kind: Some(kind),
                within: Within::Tensor,
                bytes: self.plan.activation_bytes(),
                end: PairEnd::Both,
            });
        }
    }
}

/// Gradients and parameters.
impl StageWriter<'_> {
    /// The gradients of layers: those of experts have groups of their own.
    fn begin_bucket(&self, builder: &mut ProgramBuilder) {
        self.bucket()
            .into_iter()
            .flatten()
            .for_each(|one| builder.begin(one));
    }

    fn bucket_layers(&self) -> u64 {
        match self.gathers() {
            true => 1,
            false => u64::from(self.plan.bucket_layers),
        }
    }

    fn bucket(&self) -> [Option<Exchange>; 2] {
        let layers = self.bucket_layers();
        [
            self.gradients("gradients", layers * self.plan.layer_parameters()),
            self.expert_gradients("expert-gradients", layers),
        ]
    }

    /// What is in no bucket.
    fn rest(&self) -> [Option<Exchange>; 2] {
        let left = match self.gathers() {
            true => 0,
            false => self.plan.layers() % self.plan.bucket_layers,
        };
        let parameters = match self.gathers() {
            true => self.plan.end_parameters(self.stage),
            false => self.plan.rest_parameters(self.stage),
        };
        [
            self.gradients("gradients-rest", parameters),
            self.expert_gradients("expert-gradients-rest", u64::from(left)),
        ]
    }

    fn gradients(&self, name: &'static str, parameters: u64) -> Option<Exchange> {
        self.added_up(name, Within::Data, parameters)
    }

    fn expert_gradients(&self, name: &'static str, layers: u64) -> Option<Exchange> {
        self.added_up(
            name,
            Within::ExpertData,
            layers * self.plan.expert_parameters(),
        )
    }

    fn added_up(&self, name: &'static str, within: Within, parameters: u64) -> Option<Exchange> {
        let kind = match self.plan.zero {
            0 => CollectiveKind::AllReduce,
            _ => CollectiveKind::ReduceScatter,
        };
        let exchange = Exchange {
            name,
            kind: Some(kind),
            within,
            bytes: parameters * self.plan.gradient_bytes,
            end: PairEnd::Both,
        };
        (parameters > 0 && self.plan.layout.size(within) > 1).then_some(exchange)
    }

    fn parameters(&self, name: &'static str, parameters: u64) -> Exchange {
        Exchange {
            name,
            kind: Some(CollectiveKind::AllGather),
            within: Within::Data,
            bytes: parameters * self.plan.element_bytes,
            end: PairEnd::Both,
        }
    }

    /// Waits for gradients, adds up those of the embedding's two copies, and carries out the optimizer; where
    /// replicas have parts of its state, they give each other the parameters of theirs.
    fn finish(&self, builder: &mut ProgramBuilder) {
        let has_buckets = self.gathers() || self.plan.buckets() > 0;
        let buckets = self.bucket().into_iter().filter(|_| has_buckets);
        let all = buckets.chain(self.rest()).flatten();
        all.for_each(|one| builder.wait(one, 0));
        let is_end = self.stage == 0 || self.is_last();
        if self.plan.has_two_embeddings() && is_end {
            let matrix = Parameters {
                divided: self.plan.transformer.vocabulary * self.plan.transformer.hidden,
                copied: 0,
            };
            builder.call(Exchange {
                name: "embedding",
                kind: Some(CollectiveKind::AllReduce),
                within: Within::Ends,
                bytes: matrix.of_rank(self.plan.tensor()) * self.plan.gradient_bytes,
                end: PairEnd::Both,
            });
        }
        builder.compute(self.plan.optimizer);
        if self.plan.zero == 1 || self.plan.zero == 2 {
            self.gather_parameters(builder);
        }
    }

    /// As many all-gathers of parameters as there are of gradients, one after the other.
    fn gather_parameters(&self, builder: &mut ProgramBuilder) {
        let gathered = |one: Exchange| {
            let name = match one.name {
                "gradients" => "parameters",
                "gradients-rest" => "parameters-rest",
                "expert-gradients" => "expert-parameters",
                _ => "expert-parameters-rest",
            };
            Exchange {
                name,
                kind: Some(CollectiveKind::AllGather),
                bytes: one.bytes / self.plan.gradient_bytes * self.plan.element_bytes,
                ..one
            }
        };
        let buckets = self.bucket().map(|one| one.map(gathered));
        builder.repeat(self.plan.buckets(), |builder| {
            self.together(builder, buckets)
        });
        self.together(builder, self.rest().map(|one| one.map(gathered)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::ParallelLayout;
    use super::super::training::ComputeSpeed;
    use super::super::transformer::Transformer;
    use super::*;
    use fabric_file::schema::ModelFamily;

    fn plan(layers: u64, layout: ParallelLayout) -> TrainingPlan {
        TrainingPlan {
            transformer: Transformer {
                family: ModelFamily::Gpt,
                layers,
                hidden: 12_288,
                keys: 12_288,
                ffn: 4 * 12_288,
                vocabulary: 51_200,
                sequence: 2_048,
                experts: 1,
                top: 1,
            },
            layout,
            divides_tokens: false,
            zero: 0,
            micro_batch: 1,
            micro_batches: 4,
            element_bytes: 2,
            gradient_bytes: 4,
            speed: ComputeSpeed::Flops(140_000_000_000_000),
            recompute: false,
            optimizer: Span::ZERO,
            bucket_layers: 1,
            steps: 3,
        }
    }

    const LAYOUT: ParallelLayout = ParallelLayout {
        tensor: 8,
        context: 1,
        data: 4,
        pipeline: 1,
        expert: 1,
    };

    /// Of GPT-3 with one sequence of 2,048 tokens: 50,331,648 bytes between layers.
    #[test]
    fn activations_have_a_number_of_two_bytes_for_each_token_and_place() {
        assert_eq!(plan(96, LAYOUT).activation_bytes(), 50_331_648);
    }

    /// However layers are put together, each parameter of a rank has its gradient added up once.
    #[test]
    fn buckets_have_all_gradients_of_a_rank() {
        for (layers, bucket_layers) in [(96, 1), (96, 7), (5, 2), (5, 5), (3, 3)] {
            let plan = TrainingPlan {
                bucket_layers,
                ..plan(layers, LAYOUT)
            };
            let sizes = &plan.transformer;
            let ends = sizes.embedding() + sizes.output();
            let all = layers * sizes.shared().of_rank(8) + ends.of_rank(8);
            let exchanges = plan.written(0).exchanges.into_iter();
            let own = exchanges.filter(|(one, _)| one.within == Within::Data);
            let bytes: u64 = own.map(|(one, times)| one.bytes * times).sum();
            assert_eq!(bytes, 3 * all * 4, "{layers} {bucket_layers}");
        }
    }

    /// Two collectives for each half of a layer, forward and backward (Shoeybi et al., 2019, figure 4), one
    /// behind the embedding, and one for the gradients in front of the output.
    #[test]
    fn tensor_groups_reduce_four_times_a_layer() {
        let of = |change: fn(&mut TrainingPlan)| {
            let mut plan = plan(96, LAYOUT);
            change(&mut plan);
            let exchanges = plan.written(0).exchanges.into_iter();
            let own = exchanges.filter(|(one, _)| one.within == Within::Tensor);
            own.filter_map(|(one, times)| Some((one.kind?, times)))
                .collect::<Vec<_>>()
        };
        let batches = 3 * 4;
        let all = CollectiveKind::AllReduce;
        assert_eq!(of(|_| {}), [(all, batches * (4 * 96 + 2))]);
        let again = of(|plan| plan.recompute = true);
        assert_eq!(again, [(all, batches * (6 * 96 + 2))]);
        let parts = of(|plan| plan.divides_tokens = true);
        let each = batches * (4 * 96 + 2);
        assert_eq!(
            parts,
            [
                (CollectiveKind::ReduceScatter, each),
                (CollectiveKind::AllGather, each)
            ]
        );
        assert_eq!(of(|plan| plan.layout.tensor = 1), []);
    }

    /// A program is as long for a hundred layers, micro-batches and steps as for a few.
    #[test]
    fn programs_do_not_grow() {
        let short = plan(4, LAYOUT);
        let long = TrainingPlan {
            micro_batches: 1_000,
            steps: 1_000,
            ..plan(96, LAYOUT)
        };
        let instructions = |plan: TrainingPlan| plan.written(0).program.instructions.len();
        assert_eq!(instructions(short), instructions(long));
        assert!(instructions(long) < 80, "{}", instructions(long));
    }

    /// A rank computes its part of all operations: 3 times forward, and once more where it recomputes.
    #[test]
    fn ranks_compute_their_part_of_all_operations() {
        for recompute in [false, true] {
            let plan = TrainingPlan {
                recompute,
                ..plan(96, LAYOUT)
            };
            let sizes = &plan.transformer;
            let layer = sizes.attention_flops(1) + sizes.feed_forward_flops(1);
            let more = if recompute { 96 * layer } else { 0 };
            let each = (sizes.training_flops(1) + more) * 12 / 8;
            let time = each as f64 / 140.0;
            let computing = plan.written(0).computing.0 as f64;
            assert!((computing / time - 1.0).abs() < 1e-6, "{computing} {time}");
        }
    }

    #[test]
    fn a_time_of_layers_is_divided_between_their_halves() {
        let whole = Span::from_us(1_000);
        let plan = TrainingPlan {
            speed: ComputeSpeed::LayerTime(whole),
            ..plan(96, LAYOUT)
        };
        let halves = [plan.attention_time(), plan.feed_forward_time()];
        assert_eq!(halves[0] + halves[1], whole);
        // 8h² + 4sh of 24h² + 4sh operations.
        let part = (8.0 * 12_288.0 + 4.0 * 2_048.0) / (24.0 * 12_288.0 + 4.0 * 2_048.0);
        assert!((halves[0].0 as f64 / whole.0 as f64 - part).abs() < 1e-6);
    }

    /// What a stage sends forward the next one receives, as often, and gets back as often.
    #[test]
    fn stages_send_what_their_neighbours_receive() {
        for (pipeline, micro_batches) in [(2, 1), (4, 1), (4, 3), (4, 4), (4, 9), (8, 16)] {
            let plan = TrainingPlan {
                layout: ParallelLayout { pipeline, ..LAYOUT },
                micro_batches,
                ..plan(96, LAYOUT)
            };
            for stage in 0..pipeline {
                let exchanges = plan.written(stage).exchanges;
                let times = |within: Within, end: PairEnd| {
                    let mut found = exchanges.iter();
                    let found = found.find(|(one, _)| one.within == within && one.end == end);
                    found.map(|(_, times)| *times)
                };
                let all = Some(3 * u64::from(micro_batches));
                let [after, before] = [
                    all.filter(|_| stage + 1 < pipeline),
                    all.filter(|_| stage > 0),
                ];
                assert_eq!(
                    times(Within::Forward, PairEnd::Sender),
                    after,
                    "{pipeline} {stage}"
                );
                assert_eq!(
                    times(Within::Backward, PairEnd::Receiver),
                    after,
                    "{pipeline} {stage}"
                );
                assert_eq!(
                    times(Within::Forward, PairEnd::Receiver),
                    before,
                    "{pipeline} {stage}"
                );
                assert_eq!(
                    times(Within::Backward, PairEnd::Sender),
                    before,
                    "{pipeline} {stage}"
                );
            }
        }
    }

    /// All stages together compute what one rank would, and have its parameters, but for a second embedding.
    #[test]
    fn stages_are_the_whole_model() {
        let whole = plan(96, LAYOUT);
        let parted = TrainingPlan {
            layout: ParallelLayout {
                pipeline: 4,
                ..LAYOUT
            },
            ..whole
        };
        let computing = (0..4).map(|stage| parted.written(stage).computing.0);
        assert_eq!(computing.sum::<u64>(), whole.written(0).computing.0);
        let ends: u64 = (0..4).map(|stage| parted.end_parameters(stage)).sum();
        assert_eq!(ends, whole.end_parameters(0) + 51_200 * 12_288 / 8);
    }

    /// Rajbhandari et al., 2020, section 7: dividing the optimizer's state sends as much as adding up all
    /// gradients does, and dividing parameters half as much again, for one micro-batch.
    #[test]
    fn zero_sends_once_and_a_half_as_much_at_most() {
        let sent = |zero: u8| {
            let mut plan = plan(96, LAYOUT);
            (plan.zero, plan.micro_batches) = (zero, 1);
            plan.gradient_bytes = plan.element_bytes;
            let exchanges = plan.written(0).exchanges.into_iter();
            let own = exchanges.filter(|(one, _)| one.within == Within::Data);
            let bytes = own.map(|(one, times)| {
                let halves = match one.kind {
                    Some(CollectiveKind::AllReduce) => 2,
                    _ => 1,
                };
                one.bytes * times * halves
            });
            bytes.sum::<u64>()
        };
        assert_eq!([sent(1), sent(2)], [sent(0); 2]);
        // The embedding and the output are gathered once, and kept.
        let ends = 3 * 2 * plan(96, LAYOUT).end_parameters(0);
        assert_eq!(2 * (sent(3) - 2 * ends), 3 * (sent(0) - 2 * ends));
    }

    /// Keys and values go round c-1 ranks forward; backward they do so again with their gradients, which then
    /// go home.
    #[test]
    fn keys_go_round() {
        let plan = TrainingPlan {
            layout: ParallelLayout {
                context: 4,
                ..LAYOUT
            },
            ..plan(96, LAYOUT)
        };
        let exchanges = plan.written(0).exchanges.into_iter();
        let own = exchanges.filter(|(one, _)| one.within == Within::Context);
        let own: Vec<_> = own
            .map(|(one, times)| (one.name, one.bytes, times))
            .collect();
        let (bytes, passes) = (2 * 512 * 12_288 / 8 * 2, 3 * 4 * 96);
        assert_eq!(
            own,
            [
                ("keys", bytes, 3 * passes),
                ("keys-backward", 2 * bytes, 3 * passes),
                ("keys-home", bytes, passes),
            ]
        );
    }

    /// DeepSeek's DeepEP with 4,096 tokens of 7,168 numbers to 8 experts each: 469,762,048 bytes come back.
    #[test]
    fn tokens_go_to_experts_as_published() {
        let mut plan = plan(4, LAYOUT);
        plan.transformer = Transformer {
            hidden: 7_168,
            sequence: 4_096,
            experts: 256,
            top: 8,
            ..plan.transformer
        };
        plan.layout = ParallelLayout {
            tensor: 1,
            context: 1,
            data: 32,
            pipeline: 1,
            expert: 32,
        };
        let exchanges = plan.written(0).exchanges.into_iter();
        let own = exchanges.filter(|(one, _)| one.within == Within::Expert);
        let own: Vec<_> = own.map(|(one, times)| (one.bytes, times)).collect();
        assert_eq!(own, [(469_762_048, 3 * 4 * 4 * 4)]);
    }
}
