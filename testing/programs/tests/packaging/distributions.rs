//! Programs of other distributions: built against other releases of rdma-core and of the C library.
//!
//! Debian 13 with the build of this test, unless `ROCKERY_TEST_DISTRIBUTIONS` names others, separated by
//! spaces (`scripts/distribution.sh` has the names): these use rockery as built for packages, since their C
//! library may be older than this machine's. Each is downloaded once, to `target/distributions`.

use std::collections::BTreeSet;
use std::path::Path;

use programs::symbols::exported;
use programs::{Distribution, Exchange, Machine, Namespace, Pair, Rockery, connection, perftest};

const SECONDS: u64 = 120;
const UCX_PORT: u16 = 13337;
const LIBFABRIC_PORT: u16 = 47592;

/// The names of distributions, and the rockery that they use.
fn selected() -> (String, Rockery) {
    let named = std::env::var("ROCKERY_TEST_DISTRIBUTIONS");
    named.map_or_else(
        |_| ("debian-13".to_owned(), Rockery::built()),
        |names| (names, Rockery::packaged()),
    )
}

/// Calls `body` with each distribution.
fn on_each(body: impl Fn(&str, &Distribution)) {
    let (names, rockery) = selected();
    assert!(
        names.split_whitespace().next().is_some(),
        "ROCKERY_TEST_DISTRIBUTIONS names no distribution"
    );
    for name in names.split_whitespace() {
        let distribution = Distribution::new(name, &rockery);
        body(
            name,
            &distribution.unwrap_or_else(|error| panic!("{name}: {error}")),
        );
    }
}

/// The same, with a machine of it that is alone.
fn on_a_machine(body: impl Fn(&str, &dyn Machine)) {
    on_each(|name, distribution| {
        let alone = Namespace::alone().expect("a namespace");
        body(name, &distribution.on(&alone));
    });
}

/// The libraries that rockery replaces, and the files that it has for them.
const LIBRARIES: [(&str, &str); 8] = [
    ("libibverbs.so.1", "libibverbs.so"),
    ("librdmacm.so.1", "librdmacm.so"),
    ("libmlx5.so.1", "libdv_stubs.so"),
    ("libmlx4.so.1", "libdv_stubs.so"),
    ("libefa.so.1", "libdv_stubs.so"),
    ("libhns.so.1", "libdv_stubs.so"),
    ("libmana.so.1", "libdv_stubs.so"),
    ("libionic.so.1", "libdv_stubs.so"),
];

/// Names with their versions, without the functions that IBVERBS_1.1 replaced in 2006.
fn symbols(library: &Path) -> BTreeSet<String> {
    let all = exported(library).expect("symbols");
    let is_replaced = |symbol: &String| {
        let name = symbol.strip_suffix("@IBVERBS_1.0");
        name.is_some_and(|name| all.contains(&format!("{name}@IBVERBS_1.1")))
    };
    all.iter()
        .filter(|symbol| !is_replaced(symbol))
        .cloned()
        .collect()
}

/// With `debian-testing` among the distributions this compares with the newest rdma-core that is packaged.
#[test]
fn every_symbol_of_the_distribution_is_there() {
    let (_, rockery) = selected();
    on_each(|name, distribution| {
        let mut missing = Vec::new();
        for (library, file) in LIBRARIES {
            let theirs = distribution
                .root()
                .join("usr/lib/x86_64-linux-gnu")
                .join(library);
            if !theirs.exists() {
                assert!(
                    library != "libibverbs.so.1",
                    "{name} has no {library} in {}",
                    theirs.display()
                );
                continue;
            }
            let ours = symbols(&rockery.path().with_file_name(file));
            missing.extend(
                symbols(&theirs)
                    .difference(&ours)
                    .map(|symbol| format!("{library}: {symbol}")),
            );
        }
        assert!(
            missing.is_empty(),
            "{name} has symbols that rockery lacks:\n{}",
            missing.join("\n")
        );
    });
}

/// They link `libmlx5` and `libefa`, bound at start: one symbol that is missing keeps every one of them from
/// starting.
#[test]
fn perftest_runs_every_program() {
    on_a_machine(|name, machine| {
        for (operation, options) in [
            ("send", ""),
            ("send", "-c UD"),
            ("write", ""),
            ("write", "-c UC"),
            ("read", ""),
            ("atomic", ""),
        ] {
            for kind in ["bw", "lat"] {
                let line = format!("ib_{operation}_{kind} -d rk_lo -n 100 {options}");
                println!("{name}: {line}");
                perftest::expect(machine, machine, &line);
            }
        }
        let connected = connection::expect(
            (machine, "ib_write_bw -R -n 100"),
            (machine, "ib_write_bw -R -n 100 127.0.0.1"),
            SECONDS,
        );
        assert!(
            !perftest::rows(&connected.client.output).is_empty(),
            "{}",
            connected.client.output
        );
    });
}

#[test]
fn rping_pings() {
    on_a_machine(|name, machine| {
        let exchange = connection::expect(
            (machine, "rping -s -a 127.0.0.1 -C 20 -v"),
            (machine, "rping -c -a 127.0.0.1 -C 20 -v"),
            SECONDS,
        );
        assert!(
            exchange.client.output.contains("ping data"),
            "{name}: {}",
            exchange.client.output
        );
    });
}

/// UCX opens every device and asks `libmlx5` whether it is one of that vendor, before it takes plain verbs.
#[test]
fn ucx_runs_over_verbs() {
    on_each(|name, distribution| {
        // UCX 1.23.0~rc1 of Debian testing was built without its module for verbs.
        let module = "usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0";
        if name == "debian-testing" && !distribution.root().join(module).exists() {
            return println!("{name}: its UCX has no {module}");
        }
        let alone = Namespace::alone().expect("a namespace");
        let machine = &distribution.on(&alone);
        let found = machine
            .run(&["ucx_info", "-d"], SECONDS)
            .unwrap()
            .expect_success()
            .output;
        for transport in ["rc_verbs", "ud_verbs"] {
            let lines = format!("Transport: {transport}\n#         Device: rk_lo:1");
            assert!(found.contains(&lines), "{name}: no {transport}:\n{found}");
        }
        for (transport, test) in [
            ("rc_verbs", "put_bw -s 65536 -D zcopy"),
            ("ud_verbs", "am_lat -s 8"),
        ] {
            let line = format!(
                "ucx_perftest -P 0 -p {UCX_PORT} -w 10 -d rk_lo:1 -x {transport} -n 200 -t {test}"
            );
            ucx(name, machine, &line);
        }
        let variables = "env UCX_TLS=rc UCX_NET_DEVICES=rk_lo:1";
        ucx(
            name,
            machine,
            &format!("{variables} ucx_perftest -P 0 -p {UCX_PORT} -w 10 -n 200 -t tag_bw -s 65536"),
        );
    });
}

/// `-P 0`: where its standard input is no terminal, a UCX built with MPI takes for granted that MPI has
/// started it. Others do not have the option.
fn ucx(name: &str, machine: &dyn Machine, line: &str) {
    let usage = machine
        .run(&["ucx_perftest", "-h"], SECONDS)
        .expect("UCX is installed")
        .output;
    let has_mpi = usage
        .lines()
        .any(|line| line.trim_start().starts_with("-P "));
    let line = if has_mpi {
        line.to_owned()
    } else {
        line.replace(" -P 0", "")
    };
    let argv: Vec<&str> = line.split_whitespace().collect();
    let exchange = Exchange::run(machine, machine, &argv, "-x", UCX_PORT, SECONDS);
    let exchange = exchange
        .unwrap_or_else(|error| panic!("{name}: {line}: {error}"))
        .expect_success();
    assert!(
        exchange.client.output.contains("Final:"),
        "{name}: {line}:\n{}",
        exchange.client.output
    );
}

/// Between two hosts: libfabric's provider skips loopback interfaces.
#[test]
fn libfabric_plays_over_verbs() {
    on_each(|name, distribution| {
        let pair = Pair::new(1500).expect("a pair");
        let (left, right) = (distribution.on(&pair.left), distribution.on(&pair.right));
        for (provider, endpoint) in [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")] {
            let argv = [
                "fi_pingpong",
                "-p",
                provider,
                "-e",
                endpoint,
                "-I",
                "10",
                "-c",
            ];
            let exchange = Exchange::run(&left, &right, &argv, "", LIBFABRIC_PORT, SECONDS);
            let exchange = exchange.unwrap_or_else(|error| panic!("{name}: {provider}: {error}"));
            let client = exchange.expect_success().client.output;
            assert!(client.contains("1m"), "{name}: {provider}: {client}");
        }
    });
}

/// Modules of rdma-core's tests, and how many cases of each pass at least, with the oldest release.
const MODULES: [(&str, usize); 7] = [
    ("test_device.", 8),
    ("test_pd.", 3),
    ("test_mr.", 10),
    ("test_cq.", 3),
    ("test_qp.", 12),
    ("test_qpex.", 11),
    ("test_odp.", 5),
];
/// How long all cases of a release may take, on a busy machine.
const CASES_SECONDS: u64 = 900;

/// Cases of a release that do not pass. rdma-core 39 binds a window with a key made of the region's instead
/// of the window's.
const KNOWN: [(&str, &str); 1] = [(
    "ubuntu-22.04",
    "test_qpex.QpExTestCase.test_qp_ex_rc_bind_mw",
)];

/// All of rdma-core's tests through its Python binding, both of the distribution's release, in one process.
/// Those of RDMA-CM need a device with an IP address other than loopback.
#[test]
fn pyverbs_passes_the_tests_of_its_release() {
    let run = include_str!("../../../../device/verbs/tests/pyverbs/run.py");
    on_each(|name, distribution| {
        let pair = Pair::new(1500).expect("a pair");
        let machine = distribution.on(&pair.left);
        let tests = "/usr/share/doc/rdma-core/tests";
        let argv = [
            "python3", "-c", run, tests, "--dev", "rk_eth0", "--gid", "1",
        ];
        let said = machine
            .run(&argv, CASES_SECONDS)
            .unwrap()
            .expect_success()
            .output;
        let is_known = |line: &str| {
            KNOWN
                .iter()
                .any(|(of, case)| *of == name && line.contains(case))
        };
        let of_word = |word: &'static str| {
            said.lines()
                .filter(move |line| line.starts_with(word))
                .filter(|line| !is_known(line))
        };
        println!("{name}: {} cases pass", of_word("ok ").count());
        let failed: Vec<&str> = of_word("failure ").chain(of_word("error ")).collect();
        assert!(failed.is_empty(), "{name}:\n{}\n{said}", failed.join("\n"));
        for (module, at_least) in MODULES {
            let passed = of_word("ok ").filter(|line| line.contains(module)).count();
            assert!(
                passed >= at_least,
                "{name}: {passed} cases of {module}\n{said}"
            );
        }
    });
}
