//! The borders between the libraries and their process: signals, the limits of the system, and memory that
//! the program takes away. Each probe runs all cases of a table, each in a process of its own.

use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Rockery, Segment};

const SECONDS: u64 = 300;

/// Cases of `counts` whose objects the kernel's device does not have.
const NOT_OFFERED_BY_RXE: [&str; 6] = [
    "a domain with a null region",
    "a domain with a parent domain",
    "a thread domain with a parent domain",
    "a completion queue of an XRC queue",
    "an XRC domain with an XRC queue",
    "device memory",
];

fn expect_right(rockery: &Rockery, probe: &Probe, arguments: &[&str]) {
    let alone = Namespace::alone().expect("a namespace").with(rockery);
    let path = probe.path().to_string_lossy();
    let argv = [&[&*path], arguments].concat();
    let ran = alone.run(&argv, SECONDS).expect("it runs");
    let is_right = ran.succeeded() && ran.output.ends_with("right\n");
    assert!(is_right, "{arguments:?}, {rockery:?}:\n{}", ran.output);
}

/// A request to or from such memory ends with a status, whichever thread copies.
#[test]
fn memory_that_is_taken_away_ends_requests_and_no_process() {
    let probe = Probe::compile("memory_changed").unwrap();
    for rockery in [Rockery::built(), Rockery::by_packets()] {
        for ends in ["one", "two"] {
            expect_right(&rockery, &probe, &[ends]);
        }
    }
}

/// What a case of `counts` prints where the count of users is right.
const COUNTED: &str = "EBUSY in use, its user 0, afterwards 0";

/// The cases of `counts` on a machine, each with its outcome.
fn counts(machine: &dyn Machine, probe: &Probe, device: &str) -> Vec<(String, String)> {
    let path = probe.path().to_string_lossy();
    let ran = machine.run(&[&path, device], SECONDS).expect("it runs");
    let said = ran.expect_success().output;
    let cases = said
        .lines()
        .map(|line| line.split_once(": ").expect("a case"));
    cases
        .map(|(case, outcome)| (case.to_owned(), outcome.to_owned()))
        .collect()
}

fn counts_probe() -> Probe {
    Probe::compile("counts").expect("a compiler")
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let probe = counts_probe();
    let alone = Namespace::alone().unwrap().with(&Rockery::built());
    let cases = counts(&alone, &probe, "rk_lo");
    assert_eq!(cases.len(), 15, "{cases:?}");
    for (case, outcome) in cases {
        assert_eq!(outcome, COUNTED, "{case}");
    }
}

/// The kernel's device has the same counts of users; some objects it does not offer.
#[test]
fn the_kernels_device_refuses_what_is_in_use_too() {
    let probe = counts_probe();
    let segment = Segment::new(1500).unwrap();
    let guest = segment.guest(11, &[probe.path()]).unwrap();
    let mut not_offered = Vec::new();
    for (case, outcome) in counts(&guest, &probe, "rxe0") {
        match outcome.as_str() {
            "not offered" => not_offered.push(case),
            outcome => assert_eq!(outcome, COUNTED, "{case}"),
        }
    }
    assert_eq!(not_offered, NOT_OFFERED_BY_RXE);
}

#[test]
fn the_signals_of_a_program_do_what_they_do_without_a_device() {
    let probe = Probe::compile("signals").unwrap();
    let path = probe.path().to_string_lossy();
    let alone = Namespace::with_rockery();
    let run = |argv: &[&str]| alone.run(argv, SECONDS).unwrap().expect_success().output;
    assert_eq!(run(&[&path, "open"]), run(&[&path]));
}

#[test]
fn a_step_that_a_limit_refuses_has_an_error_number_and_succeeds_later() {
    let libraries = ["-lrdmacm", "-libverbs"];
    let probe = Probe::compile_with("cc", "resources", &libraries).unwrap();
    for limit in ["NOFILE", "MEMLOCK", "AS", "FSIZE", "NPROC", "STACK", "DATA"] {
        expect_right(&Rockery::built(), &probe, &[limit]);
    }
}

/// Libraries that replace functions of the C library, before and behind rockery's, which `rockery run`
/// preloads, and rockery's twice.
#[test]
fn programs_run_with_other_preloaded_libraries_in_each_order() {
    let flags = ["-g", "-pthread", "-libverbs"];
    let probe = Probe::compile_with("cc", "sanitized", &flags).unwrap();
    let path = probe.path().to_string_lossy();
    let mut tried = 0;
    for rockery in [
        Rockery::built(),
        Rockery::by_packets(),
        Rockery::with_sockets(),
    ] {
        let alone = Namespace::alone().unwrap().with(&rockery);
        for library in ["libjemalloc.so.2", "libasan.so"] {
            let other = installed(library);
            for order in [
                "$OTHER:$LD_PRELOAD",
                "$LD_PRELOAD:$OTHER",
                "$LD_PRELOAD:$OTHER:$LD_PRELOAD",
            ] {
                let script = format!("OTHER={other}; LD_PRELOAD={order} exec {path}");
                let ran = alone.run(&["sh", "-c", &script], SECONDS).unwrap();
                let is_right = ran.succeeded() && ran.output.ends_with("right\n");
                assert!(is_right, "{script} {rockery:?}:\n{}", ran.output);
                tried += 1;
            }
            // `rockery run` puts its libraries before those that it is started with.
            let preload = format!("LD_PRELOAD={other}");
            let run = [&[rockery.word(), "run"], rockery.options(), &["--", &path]].concat();
            let mut ran = alone
                .start_plain(&[&["env", &preload], &run[..]].concat())
                .unwrap();
            let ran = ran.wait(SECONDS).unwrap();
            let is_right = ran.succeeded() && ran.output.ends_with("right\n");
            assert!(is_right, "{preload} {rockery:?}:\n{}", ran.output);
        }
        let twice = [&[rockery.word(), "run"], rockery.options(), &["--", &path]].concat();
        let ran = alone.run(&twice, SECONDS).unwrap();
        assert!(ran.succeeded(), "{twice:?}:\n{}", ran.output);
    }
    assert_eq!(tried, 18);
}

/// The path of a library that the dynamic linker knows.
fn installed(library: &str) -> String {
    let listed = std::process::Command::new("/sbin/ldconfig")
        .arg("-p")
        .output();
    let listed = String::from_utf8(listed.expect("ldconfig").stdout).expect("text");
    let path = listed
        .lines()
        .filter(|line| line.trim().starts_with(library))
        .find_map(|line| line.rsplit(' ').next());
    path.unwrap_or_else(|| panic!("{library} is not installed"))
        .to_owned()
}
