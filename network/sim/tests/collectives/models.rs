//! Models: their programs against the same written out, and what must hold whatever the plan.

use super::{Ran, experiment, run, run_on};
use fabric::Span;
use std::fmt::Write as _;

/// Four ranks on two servers.
const SERVERS: &str = r#"
topology = { kind = "rail", servers = 2, rails = 2, spines = 1, rate = "100Gb/s" }

[group.ranks]
hosts = ["n*"]
ranks-per-server = 2
local = { rate = "800Gb/s", delay = "500ns" }
"#;

const MODEL: &str = r#"
[[model]]
name = "small"
layers = 3
hidden = 256
heads = 4
vocabulary = 1000
sequence = 128
micro-batches = 2
flops = "10TFLOP/s"
efficiency = "50%"
group = "ranks"
parallel = { tensor = 2, data = 2 }
"#;

fn model(more: &str) -> String {
    format!("{SERVERS}{MODEL}{more}")
}

/// Times of programs at all hosts, in picoseconds: computing, waiting and the end of the last step.
fn sums(ran: &Ran) -> Vec<[u64; 3]> {
    let programs = ran.results.programs.iter();
    let sum = |spans: &[Span]| spans.iter().map(|span| span.0).sum();
    programs
        .map(|(_, one)| {
            let end = one.steps.last().unwrap().0;
            [one.computed.0, sum(&one.waited), end]
        })
        .collect()
}

/// The step of [`MODEL`], collective by collective. A tensor group's run one after the other, each behind
/// what its ranks compute; gradients wait for the last one before them.
fn written_out() -> String {
    let mut text = SERVERS.to_owned();
    for (group, ranks) in [("t0", "n0r*"), ("t1", "n1r*")] {
        let _ = writeln!(
            text,
            "[group.{group}]\nhosts = [\"{ranks}\"]\nranks-per-server = 2\n\
             local = {{ rate = \"800Gb/s\", delay = \"500ns\" }}"
        );
    }
    for (group, ranks) in [("d0", "n*r0"), ("d1", "n*r1")] {
        let _ = writeln!(text, "[group.{group}]\nhosts = [\"{ranks}\"]");
    }
    let (h, s, v, f) = (256_u64, 128_u64, 1_000_u64, 1_024_u64);
    // At five operations in a picosecond.
    let time = |flops: u64| flops.div_ceil(2) / 5;
    let attention = time(2 * s * 4 * h * h + 4 * s * s * h);
    let feed_forward = time(2 * s * 2 * h * f);
    let output = time(2 * s * h * v);
    let mut before: Vec<u64> = Vec::new();
    let mut buckets: Vec<usize> = Vec::new();
    for micro_batch in 0..2 {
        // What is computed in front of each reduction; that of the embedding follows at once.
        before.push(0);
        for _ in 0..3 {
            before.extend([attention, feed_forward]);
        }
        before.push(output + 2 * output);
        for _ in 0..3 {
            before.extend([2 * feed_forward, 2 * attention]);
            if micro_batch == 1 {
                buckets.push(before.len() - 1);
            }
        }
    }
    for (number, compute) in before.iter().enumerate() {
        for group in ["t0", "t1"] {
            let _ = writeln!(
                text,
                "[[collective]]\nname = \"{group}-{number}\"\nkind = \"all-reduce\"\ngroup = \"{group}\"\n\
                 bytes = \"{}B\"\ncompute = \"{compute}ps\"",
                s * h * 2
            );
            if number > 0 {
                let _ = writeln!(text, "after = [\"{group}-{}\"]", number - 1);
            }
        }
    }
    let layer = (4 * h * h + 3 * h + 2 * h * f + f) / 2 + 6 * h;
    let rest = v * h / 2 + s * h + 2 * h;
    let mut gradients: Vec<(usize, u64)> = buckets.iter().map(|at| (*at, layer)).collect();
    gradients.push((before.len() - 1, rest));
    for (number, (at, parameters)) in gradients.into_iter().enumerate() {
        for group in ["d0", "d1"] {
            let _ = writeln!(
                text,
                "[[collective]]\nname = \"{group}-{number}\"\nkind = \"all-reduce\"\ngroup = \"{group}\"\n\
                 bytes = \"{}B\"\nafter = [\"t0-{at}\", \"t1-{at}\"]",
                parameters * 2
            );
        }
    }
    text
}

/// A program does what its collectives do, written out: to the packet.
#[test]
fn a_model_is_its_collectives_in_loops() {
    let looped = run(&model(""));
    let whole = run(&written_out());
    assert!(whole.results.hops > 1_000, "{}", whole.results.hops);
    assert_eq!(looped.results.end, whole.results.end);
    assert_eq!(looped.results.hops, whole.results.hops);
    let finished = |ran: &Ran| {
        let flows = ran.results.flows.iter();
        let mut all: Vec<_> = flows.map(|flow| (flow.finished, flow.bytes)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(finished(&looped), finished(&whole));
}

/// A rank computes, or waits for one thing: together that is the time of its steps.
#[test]
fn computing_and_waiting_are_all_of_a_step() {
    for more in [
        "",
        "recompute = true\nsteps = 3\n",
        "layer-time = \"80us\"\n",
    ] {
        let more = match more.contains("layer-time") {
            true => model(more).replace("flops = \"10TFLOP/s\"\nefficiency = \"50%\"\n", ""),
            false => model(more),
        };
        let ran = run(&more);
        for [computed, waited, end] in sums(&ran) {
            assert_eq!(computed + waited, end, "{more}");
        }
        let one = &ran.report.models[0];
        assert_eq!(one.steps, one.steps_asked);
        let parts = one.compute_us + one.exposed.iter().map(|part| part.mean_us).sum::<f64>();
        let step = one.step_us.unwrap();
        assert!(parts <= step * (1.0 + 1e-9), "{parts} of {step}");
    }
}

#[test]
fn two_threads_give_the_same() {
    let text = model("steps = 2\n");
    let [one, two] = [1, 2].map(|threads| run_on(&text, threads));
    assert_eq!(one.results.programs, two.results.programs);
    assert_eq!(one.report.models, two.report.models);
}

/// Ring all-reduces send 2(n-1) times their bytes, over all ranks of a group.
#[test]
fn bytes_on_the_network_are_those_of_the_formulas() {
    let ran = run(&model("steps = 2\n"));
    for exchange in &ran.report.models[0].exchanges {
        let one = ran.collective(&format!("{}/0", exchange.name));
        assert_eq!((one.ranks, one.bytes), (2, exchange.bytes));
        assert_eq!(one.repeat, 2 * exchange.per_step);
        let [network, local] = match exchange.dimension.as_str() {
            "tensor" => [0, 2 * exchange.bytes],
            _ => [2 * exchange.bytes, 0],
        };
        assert_eq!([one.network_bytes, one.local_bytes], [network, local]);
    }
}

/// The formulas and the simulation are of the same numbers.
#[test]
fn the_explanation_has_the_numbers_of_the_model() {
    let experiment = experiment(&model("")).unwrap();
    let text = &experiment.models[0].explanation;
    for part in [
        "small: 4 ranks = tensor t 2 · context c 1 · data d 2 · pipeline p 1",
        "b · s/c · h · element = 65,536 bytes",
        "28 times: a rank that sends gives 2/2 of it",
        "gradient 2 bytes",
        "2h² + 2hk + 2h + 2k",
    ] {
        assert!(text.contains(part), "\"{part}\" is not in:\n{text}");
    }
    let exchanges = &experiment.models[0].exchanges;
    assert_eq!(exchanges.len(), 3);
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    let error = match experiment(text) {
        Ok(_) => panic!("it was taken:\n{text}"),
        Err(error) => error,
    };
    for part in expected {
        assert!(error.contains(part), "\"{part}\" is not in:\n{error}");
    }
}

#[test]
fn plans_that_do_not_come_out_even_are_refused() {
    let with = |old: &str, new: &str| {
        assert!(model("").contains(old), "{old}");
        model("").replace(old, new)
    };
    let parallel = "parallel = { tensor = 2, data = 2 }";
    says(
        &with(parallel, "parallel = { tensor = 2, data = 3 }"),
        &["model[0].parallel", "is 6", "has 4 ranks", "data = 2"],
    );
    says(
        &with("heads = 4", "heads = 5"),
        &["model[0].heads", "256 is not divided among 5"],
    );
    says(
        &with("heads = 4", "heads = 4\nkv-heads = 1"),
        &["parallel.tensor", "kv-heads = 1 is not divided among 2"],
    );
    says(
        &with("heads = 4", "heads = 4\nkv-heads = 3"),
        &["kv-heads", "4 heads do not share 3"],
    );
    says(
        &with("layers = 3", "layers = 0"),
        &["layers", "0 is not from 1"],
    );
    says(
        &with("flops = \"10TFLOP/s\"\nefficiency = \"50%\"\n", ""),
        &["model[0].flops", "how fast", "layer-time"],
    );
    says(
        &with("efficiency", "layer-time = \"1ms\"\nefficiency"),
        &["layer-time and flops both"],
    );
    says(&with("\"50%\"", "\"0%\""), &["efficiency", "never compute"]);
    says(
        &with(
            "vocabulary = 1000",
            "vocabulary = 1000\nsteps = 60000\nmicro-batch = 60000",
        ),
        &["more than ten days"],
    );
    says(&with("\"small\"", "\"a/b\""), &["slash"]);
    let twice = format!("{}{MODEL}", model(""));
    says(&twice, &["model[1].name", "another model"]);
    says(
        &twice.replacen("\"small\"", "\"first\"", 1),
        &["model[1].group", "n0r0 is a rank of the model \"first\""],
    );
    let uneven = model("").replace("servers = 2, rails = 2", "servers = 3, rails = 2");
    says(
        &uneven
            .replace(parallel, "parallel = { tensor = 3, data = 2 }")
            .replace(
                "hidden = 256\nheads = 4",
                "hidden = 240\nheads = 6\nffn = 960",
            ),
        &[
            "parallel",
            "tensor group are not spread evenly over servers of 2",
        ],
    );
}

/// Eight ranks on four servers of two, with a plan and more.
fn of_eight(plan: &str, more: &str) -> String {
    let text = model(more).replace("servers = 2,", "servers = 4,");
    let text = text.replace("layers = 3", "layers = 8");
    let text = text.replace("heads = 4", "heads = 8");
    text.replace("tensor = 2, data = 2", plan)
}

const PLANS: [[&str; 2]; 10] = [
    ["pipeline = 8", "micro-batches = 3"],
    ["pipeline = 4, data = 2", "recompute = true"],
    ["tensor = 2, pipeline = 2, data = 2", "zero = 1"],
    [
        "tensor = 2, sequence = true, context = 2, data = 2",
        "bucket-layers = 3",
    ],
    ["context = 4, pipeline = 2", "algorithm = \"tree\""],
    ["data = 8, expert = 4", "experts = { count = 8, top = 2 }"],
    [
        "tensor = 2, sequence = true, data = 4, expert = 8",
        "experts = { count = 8, top = 1 }\nzero = 2",
    ],
    ["data = 8", "zero = 2\nbucket-layers = 3"],
    ["data = 8", "zero = 3\nsteps = 2"],
    [
        "tensor = 2, data = 4",
        "zero = 3\nfamily = \"llama\"\nrecompute = true",
    ],
];

/// Whatever the plan: all steps end, each rank's time is computing and waiting, and threads change nothing.
#[test]
fn all_plans_come_to_their_end() {
    for [plan, more] in PLANS {
        let text = of_eight(plan, "").replace("micro-batches = 2\n", "");
        let mut more = format!("{more}\n");
        if !more.contains("micro-batches") {
            more += "micro-batches = 5\n";
        }
        let ran = run(&format!("{text}{more}"));
        assert_eq!(ran.results.programs.len(), 8, "{plan}");
        for [computed, waited, end] in sums(&ran) {
            assert_eq!(computed + waited, end, "{plan}");
        }
        let report = &ran.report.models[0];
        assert_eq!(report.steps, report.steps_asked, "{plan}");
        for one in &ran.report.collectives {
            assert_eq!((one.repetitions, &one.stuck), (one.repeat, &None), "{plan}");
        }
        let other = run_on(&format!("{text}{more}"), 2);
        assert_eq!(ran.results.programs, other.results.programs, "{plan}");
        assert_eq!(ran.results.end, other.results.end, "{plan}");
    }
}

/// A pipeline that sends next to nothing takes (m + p - 1) times as long as a micro-batch at a stage: one
/// forward, one backward has a bubble of p - 1 (Narayanan et al., 2021, section 2.2.1).
#[test]
fn a_pipeline_has_its_bubble() {
    for (stages, batches) in [(8, 1), (8, 4), (8, 8), (4, 12), (2, 5)] {
        let plan = format!("pipeline = {stages}, data = {}", 8 / stages);
        let text = of_eight(&plan, "layer-time = \"10ms\"\n")
            .replace("flops = \"10TFLOP/s\"\nefficiency = \"50%\"\n", "")
            .replace("micro-batches = 2", &format!("micro-batches = {batches}"));
        let ran = run(&text);
        let of_stage = 3 * 10_000 * 8 / stages;
        let bound = f64::from((batches + stages - 1) * of_stage);
        let step = ran.report.models[0].step_us.unwrap();
        assert!(
            step >= bound && step < 1.02 * bound,
            "{stages} {batches}: {step} {bound}"
        );
    }
}

/// What is exposed is what no computing hides: gradients that are added up while other layers are computed
/// are not.
#[test]
fn overlapped_gradients_are_not_exposed() {
    let exposed = |bucket_layers: u32| {
        let more = format!("layer-time = \"1ms\"\nbucket-layers = {bucket_layers}\n");
        let text = of_eight("data = 8", &more);
        let text = text.replace("flops = \"10TFLOP/s\"\nefficiency = \"50%\"\n", "");
        let ran = run(&text);
        ran.report.models[0].exposed[0].mean_us
    };
    let [each, all] = [1, 8].map(exposed);
    assert!(each < 0.5 * all, "{each} {all}");
}

#[test]
fn other_plans_that_do_not_come_out_even_are_refused() {
    says(
        &of_eight("pipeline = 3, data = 2", ""),
        &[
            "parallel",
            "context 1 times data 2 times pipeline 3 is 6",
            "has 8 ranks",
        ],
    );
    says(
        &of_eight("pipeline = 8", "").replace("layers = 8", "layers = 12"),
        &[
            "parallel.pipeline",
            "layers = 12 is not divided among 8 stages",
        ],
    );
    says(
        &of_eight("context = 8", "").replace("sequence = 128", "sequence = 124"),
        &["parallel.context", "sequence = 124"],
    );
    says(
        &of_eight("data = 8, expert = 3", "experts = { count = 6 }\n"),
        &["parallel.expert", "8 ranks of a stage"],
    );
    says(
        &of_eight("data = 8, expert = 4", "experts = { count = 6 }\n"),
        &["parallel.expert", "6 experts are not divided among 4"],
    );
    says(
        &of_eight("data = 8", "experts = { count = 2, top = 3 }\n"),
        &["experts.top", "3 of 2 experts"],
    );
    says(
        &of_eight("tensor = 2, data = 4", "experts = { count = 2 }\n"),
        &["parallel.sequence", "all tokens"],
    );
    says(
        &of_eight("data = 4, pipeline = 2", "zero = 2\n"),
        &["zero", "pipeline"],
    );
    says(&of_eight("data = 8", "zero = 4\n"), &["stages 0 to 3"]);
    says(
        &of_eight("data = 8", "zero = 3\nexperts = { count = 2 }\n"),
        &["zero", "experts are not gathered"],
    );
    let large = "experts = { count = 4000, top = 4000 }\nffn = 1000000\n";
    let wide = of_eight("data = 8", large).replace("hidden = 256", "hidden = 262144");
    let wide = wide.replace("layers = 8", "layers = 100");
    says(&wide, &["layers", "parameters"]);
}
