//! The formulas of a model with its numbers, for people.

use super::super::kind_name;
use super::builder::Exchange;
use super::training::{ComputeSpeed, TrainingPlan};
use fabric_file::schema::{CollectiveKind, ModelFamily};
use std::fmt::Write as _;

/// A number with a comma before each three digits.
fn grouped(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What is explained: a name, its formula, and the formula with numbers and its result.
struct Lines(Vec<[String; 3]>);

impl Lines {
    fn add(&mut self, name: &str, formula: &str, result: String) {
        self.0.push([name.to_owned(), formula.to_owned(), result]);
    }

    fn text(&self, head: &str) -> String {
        let width = |column: usize| {
            let cells = self.0.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let [name, formula] = [width(0), width(1)];
        let mut text = format!("\n  {head}\n");
        for [first, second, third] in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {first:name$}  {second:formula$}  {third}");
        }
        text
    }
}

/// The formulas of a model, with its numbers.
pub fn explanation(name: &str, plan: &TrainingPlan, exchanges: &[(Exchange, u64)]) -> String {
    let layout = &plan.layout;
    let mut text = format!(
        "{name}: {} ranks = tensor t {} · context c {} · data d {} · pipeline p {}",
        layout.ranks(),
        layout.tensor,
        layout.context,
        layout.data,
        layout.pipeline
    );
    let sizes = &plan.transformer;
    if sizes.experts > 1 {
        let _ = write!(
            text,
            "; experts E {}, of which a token goes to T {}, over {} ranks",
            sizes.experts, sizes.top, layout.expert
        );
    }
    text.push('\n');
    let _ = writeln!(
        text,
        "  layers l {}, hidden h {}, keys k {}, ffn f {}, vocabulary v {}, sequence s {}, micro-batch b {}",
        sizes.layers,
        sizes.hidden,
        sizes.keys,
        sizes.ffn,
        sizes.vocabulary,
        sizes.sequence,
        plan.micro_batch
    );
    text += &parameters(plan);
    text += &operations(plan);
    text += &collectives(plan, exchanges);
    text
}

fn parameters(plan: &TrainingPlan) -> String {
    let sizes = &plan.transformer;
    let formulas = match sizes.family {
        ModelFamily::Gpt => [
            "2h² + 2hk + 2h + 2k",
            "2hf + f + h",
            "4h",
            "vh + sh",
            "2h; its matrix is that of the embedding",
        ],
        ModelFamily::Llama => ["2h² + 2hk", "3hf", "2h", "vh", "vh + h"],
    };
    let parts = [
        ("attention", sizes.attention()),
        ("feed-forward", sizes.feed_forward()),
        ("norms", sizes.norms()),
        ("embedding", sizes.embedding()),
        ("output", sizes.output()),
    ];
    let mut lines = Lines(Vec::new());
    for ((name, part), formula) in parts.into_iter().zip(formulas) {
        lines.add(name, formula, grouped(part.all()));
    }
    let all = if sizes.experts > 1 {
        lines.add("router", "hE", grouped(sizes.router().all()));
        "l · (attention + E · feed-forward + norms + router) + embedding + output"
    } else {
        "l · (attention + feed-forward + norms) + embedding + output"
    };
    lines.add("all", all, grouped(sizes.parameters()));
    let layer = sizes.shared();
    lines.add(
        "of a layer at a rank",
        if sizes.experts > 1 {
            "matrices / t + norms, last biases and router, without experts"
        } else {
            "matrices / t + norms and last biases"
        },
        format!(
            "{} / {} + {} = {}",
            grouped(layer.divided),
            plan.layout.tensor,
            grouped(layer.copied),
            grouped(plan.layer_parameters())
        ),
    );
    if sizes.experts > 1 {
        lines.add(
            "of its experts at a rank",
            "E · feed-forward / ranks of an expert group",
            grouped(plan.expert_parameters()),
        );
    }
    lines.text("parameters (Narayanan et al., 2021, equation 2; Shoeybi et al., 2019, section 3)")
}

fn operations(plan: &TrainingPlan) -> String {
    let sizes = &plan.transformer;
    let batch = plan.micro_batch;
    let matrices = sizes.matrices();
    let parts = [
        (
            "attention",
            "b · (2s · (2h² + 2hk) + 4s²h)".to_owned(),
            sizes.attention_flops(batch),
            plan.attention_time(),
        ),
        (
            "feed-forward",
            match sizes.experts {
                0 | 1 => format!("b · 2s · {matrices}hf"),
                _ => format!("b · 2s · T · {matrices}hf"),
            },
            sizes.feed_forward_flops(batch),
            plan.feed_forward_time(),
        ),
        (
            "output",
            "b · 2s · vh".to_owned(),
            sizes.output_flops(batch),
            plan.output_time(),
        ),
    ];
    let mut lines = Lines(Vec::new());
    for (name, formula, flops, time) in parts {
        let us = time.0 as f64 / 1e6;
        let result = match plan.speed {
            ComputeSpeed::Flops(rate) => format!(
                "{} / ({} · {} · {:.3} TFLOP/s) = {us:.3} µs",
                grouped(flops),
                plan.layout.tensor,
                plan.layout.context,
                rate as f64 / 1e12
            ),
            ComputeSpeed::LayerTime(_) => format!("{}: {us:.3} µs by layer-time", grouped(flops)),
        };
        lines.add(name, &formula, result);
    }
    let again = if plan.recompute {
        ", and a layer's forward once more"
    } else {
        ""
    };
    lines.add("backward", &format!("twice as many{again}"), String::new());
    lines
        .text("operations of a micro-batch, forward (Narayanan et al., 2021, appendix)")
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// The formula of an exchange's bytes, and where it comes from.
fn bytes_of(plan: &TrainingPlan, exchange: &Exchange) -> [String; 2] {
    let layers = plan.bucket_layers;
    let per_layer = if plan.zero == 3 { 1 } else { layers };
    let [formula, source] = match exchange.name {
        "forward" | "backward" => [
            "b · s/c · h / t · element",
            "Narayanan et al., 2021, section 4.1",
        ],
        "keys" | "keys-home" => ["2 · b · s/c · k/t · element", "Liu et al., 2023, section 3"],
        "keys-backward" => [
            "2 · 2 · b · s/c · k/t · element",
            "Liu et al., 2023, section 3: with their gradients",
        ],
        "tokens" => [
            "b · s/(c·t) · T · h · element",
            "Lepikhin et al., 2021, section 3",
        ],
        "embedding" => [
            "v · h / t · gradient",
            "Megatron-LM, `finalize_model_grads`",
        ],
        name if name.starts_with("tensor") && plan.divides_tokens => [
            "b · s/c · h · element",
            "Korthikanti et al., 2022, section 4.2",
        ],
        name if name.starts_with("tensor") => {
            ["b · s/c · h · element", "Shoeybi et al., 2019, section 3"]
        }
        name => return parameters_of(name, per_layer),
    };
    [formula.to_owned(), source.to_owned()]
}

/// The same of gradients and parameters.
fn parameters_of(name: &str, layers: u32) -> [String; 2] {
    let what = if name.starts_with("expert") {
        "experts of a layer at a rank"
    } else {
        "of a layer at a rank"
    };
    let unit = if name.contains("gradients") {
        "gradient"
    } else {
        "element"
    };
    let formula = match name.ends_with("-rest") {
        true => {
            format!("(layers of no bucket, embedding / t and output / t of the stage) · {unit}")
        }
        false => format!("{layers} · parameters {what} · {unit}"),
    };
    let source = match unit {
        "gradient" => "Rajbhandari et al., 2020, section 7",
        _ => "Rajbhandari et al., 2020, section 7.2",
    };
    [formula, source.to_owned()]
}

/// What a rank of a group sends at least, for each byte (nccl-tests, `doc/PERFORMANCE.md`).
const fn sent_parts(kind: CollectiveKind, ranks: u64) -> [u64; 2] {
    match kind {
        CollectiveKind::AllReduce => [2 * (ranks - 1), ranks],
        CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll => {
            [ranks - 1, ranks]
        }
        _ => [1, 1],
    }
}

fn collectives(plan: &TrainingPlan, exchanges: &[(Exchange, u64)]) -> String {
    let mut text = format!(
        "\n  what ranks exchange in a step: element {}, gradient {} bytes\n",
        plan.element_bytes, plan.gradient_bytes
    );
    if exchanges.is_empty() {
        text += "    nothing: one rank has all\n";
    }
    for (exchange, all) in exchanges {
        let ranks = u64::from(plan.layout.size(exchange.within));
        let [formula, source] = bytes_of(plan, exchange);
        let [part, of] = exchange.kind.map_or([1, 1], |kind| sent_parts(kind, ranks));
        let sent = u128::from(exchange.bytes) * u128::from(part) / u128::from(of);
        let times = all / u64::from(plan.steps);
        let _ = writeln!(
            text,
            "    {}: {} among {ranks} ranks, {}\n      {formula} = {} bytes ({source})\n      {}: a rank \
             that sends gives {part}/{of} of it, {} bytes each time, {} in a step",
            exchange.name,
            exchange.kind.map_or("transfer", kind_name),
            exchange.within.description(),
            grouped(exchange.bytes),
            if times == 1 {
                "once".to_owned()
            } else {
                format!("{times} times")
            },
            grouped(sent),
            grouped(sent * u128::from(times)),
        );
    }
    text
}
