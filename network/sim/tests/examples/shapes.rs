//! Results do not depend on how they are come by.

use super::{run, run_with};

#[test]
fn the_same_seed_gives_the_same_report_on_one_thread_and_two() {
    let one = run("incast.toml", &[]);
    let two = run_with("incast.toml", &[], |experiment| {
        experiment.scenario.threads = 2
    });
    assert_eq!(one.report.json(), two.report.json());
    assert_eq!(one.report.workloads[0].finished, 16);
}

#[test]
fn a_run_that_is_stopped_reports_what_it_has() {
    let whole = run("incast.toml", &[]);
    let mut asked = 0;
    let ran = whole.experiment.run(&mut |progress| {
        asked += 1;
        assert!((0.0..=1.0).contains(&progress.done));
        asked < 3
    });
    let ran = ran.unwrap();
    assert!(ran.partial && ran.results.end < whole.results.end && ran.results.hops > 0);
    let report = sim::report::Report::new(&whole.experiment, &ran.results, ran.partial);
    assert!(report.partial && report.workloads[0].finished < 16);
}
