//! Files with traffic that `rockery sim` reads, by the first byte: lists of transfers, distributions of
//! message lengths, connection matrices.
#![no_main]

use fabric_file::Document;
use sim::experiment::Experiment;
use std::sync::OnceLock;

/// Hosts of the network.
const HOSTS: u32 = 8;

/// A workload for each kind of file.
const WORKLOADS: [&str; 3] = [
    "flows = \"traffic\"\nstart = \"1us\"",
    "sizes-file = \"traffic\"\nload = \"0.001%\"",
    "connections = \"traffic\"\nstart = \"1us\"",
];

fn documents() -> &'static [Document; 3] {
    static DOCUMENTS: OnceLock<[Document; 3]> = OnceLock::new();
    DOCUMENTS.get_or_init(|| {
        WORKLOADS.map(|workload| {
            let text = format!(
                "duration = \"20us\"\ntopology = {{ kind = \"star\", hosts = {HOSTS} }}\n\
                 [[workload]]\n{workload}\n"
            );
            let mut none = |name: &str| Err(format!("{name} is not included"));
            Document::read("lab.toml", &text, &mut none).expect("a fabric file")
        })
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let which = usize::from(*which) % WORKLOADS.len();
    let mut files = |_: &str| Ok(text.clone().into_owned());
    match Experiment::new(&documents()[which], &mut files) {
        Ok(experiment) => {
            for flow in &experiment.scenario.flows {
                assert!(
                    flow.from < HOSTS && flow.to < HOSTS && flow.from != flow.to,
                    "{flow:?}"
                );
                assert!((1..=1 << 31).contains(&flow.message_bytes), "{flow:?}");
            }
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("lab.toml:"), "{error}");
            let line = error.split_once("traffic, line ").map(|(_, line)| line);
            if let Some(line) = line.and_then(|line| line.split(':').next()) {
                let line: usize = line.parse().expect("a number");
                assert!((1..=text.lines().count().max(1)).contains(&line), "{error}");
            }
        }
    }
});
