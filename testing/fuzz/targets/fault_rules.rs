//! Rules of faults as lines and as a file: what is read is written as it is read again, and no plan of them
//! decides otherwise a second time.
#![no_main]

use faults::{Occasion, Opcode, Plan, Point, QpKind, Rules, read_file};
use std::time::Duration;

/// Faults of some requests, by their numbers.
fn decided(rules: &Rules) -> Vec<Option<u64>> {
    let mut plan = Plan::new(rules.clone(), "program");
    let occasion = Occasion {
        device: Some("rk_lo"),
        kind: Some(QpKind::Rc),
        qpn: Some(17),
        opcode: Some(Opcode::Send),
        size: Some(64),
        ..Occasion::at(Point::Completion)
    };
    let _ = (plan.interest(), plan.send_filters(), plan.limits("rk_lo"), plan.timed("rk_lo"));
    let mut decide = |number: u64| {
        let decision = plan.decide(&occasion, Duration::from_millis(number), |_| true);
        decision.map(|decision| u64::from(decision.rule) << 32 | decision.occasion)
    };
    (0..20).map(&mut decide).collect()
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let lines: Option<Rules> = text.parse().ok();
    let file = match read_file("rules.toml", &text) {
        Ok(rules) => Some(rules),
        Err(error) => {
            let error = error.to_string();
            let rest = error.strip_prefix("rules.toml:").expect("the file's name");
            let line = rest.split(':').next().and_then(|line| line.parse::<usize>().ok());
            let last = text.lines().count().max(1) + 1;
            assert!(line.is_some_and(|line| (1..=last).contains(&line)), "{error}");
            None
        }
    };
    for rules in [lines, file].into_iter().flatten() {
        assert_eq!(rules.to_string().parse(), Ok(rules.clone()), "{rules}");
        assert_eq!(decided(&rules), decided(&rules), "{rules}");
    }
});
