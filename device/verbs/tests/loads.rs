//! The library as the dynamic loader and the programs of Debian's packages see it.

mod library;

use library::folder;
use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str], package: &str) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", folder());
    command
        .output()
        .unwrap_or_else(|error| panic!("this test needs the package {package}: {error}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Versions of the private node that the library defines, those of future releases included.
const PRIVATE_NODES: std::ops::RangeInclusive<u32> = 25..=99;

/// Rows of the table: symbol and node, with a row for each private node where the table's row matches all.
fn table() -> Vec<(String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../abi/symbols/libibverbs.tsv");
    let rows = std::fs::read_to_string(path).expect("the table is there");
    let fields = |row: &str| {
        let mut fields = row.split('\t').map(str::to_owned);
        (
            fields.next().unwrap_or_default(),
            fields.next().unwrap_or_default(),
        )
    };
    let expanded = |(symbol, node): (String, String)| match node.strip_suffix('*') {
        None => vec![(symbol, node)],
        Some(prefix) => PRIVATE_NODES
            .map(|number| {
                (
                    symbol.replace('*', &number.to_string()),
                    format!("{prefix}{number}"),
                )
            })
            .collect(),
    };
    rows.lines()
        .skip(1)
        .map(fields)
        .flat_map(expanded)
        .collect()
}

#[test]
fn every_symbol_is_found_at_its_version() {
    let path = folder().join("libibverbs.so.1");
    let path =
        std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero in a path");
    // SAFETY: loading the library runs no code of ours.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    for (symbol, node) in table() {
        let name = std::ffi::CString::new(symbol.as_str()).expect("no zero in a name");
        let version = std::ffi::CString::new(node.as_str()).expect("no zero in a name");
        // SAFETY: the strings end with zeros, the library is loaded.
        let found = unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) };
        assert!(!found.is_null(), "{symbol}@{node}");
    }
}

#[test]
fn nothing_else_is_exported() {
    let library = folder().join("libibverbs.so.1");
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output();
    let listed = text(&output.expect("this test needs the package binutils"));
    let nodes: std::collections::BTreeSet<String> =
        table().into_iter().map(|(_, node)| node).collect();
    let exported: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    let symbols: Vec<&&str> = exported
        .iter()
        .filter(|name| !nodes.contains(**name))
        .collect();
    assert_eq!(symbols.len(), table().len());
    assert!(
        symbols.iter().all(|name| name.contains("@IBVERBS_")),
        "{symbols:?}"
    );
}

/// Probes for tracers, as the notes of the library list them: each argument is in a register.
#[test]
fn the_library_has_static_probes_with_their_arguments() {
    let library = folder().join("libibverbs.so.1");
    let output = Command::new("readelf").arg("-n").arg(library).output();
    let listed = text(&output.expect("this test needs the package binutils"));
    let fields = |name: &str| -> Vec<&str> {
        let lines = listed.lines().map(str::trim);
        lines.filter_map(|line| line.strip_prefix(name)).collect()
    };
    let providers = fields("Provider: ");
    let (names, arguments) = (fields("Name: "), fields("Arguments: "));
    assert!(!names.is_empty() && providers.iter().all(|provider| *provider == "rockery"));
    assert_eq!(
        (names.len(), arguments.len()),
        (providers.len(), providers.len())
    );
    let places = fields("Location: 0x");
    for (probe, count) in [("post_send", 2), ("post_receive", 2), ("completion", 5)] {
        let of_probe = |index: &usize| names[*index] == probe;
        let own: Vec<usize> = (0..names.len()).filter(of_probe).collect();
        // One place each, within the code: a note of code that was left out has a small number.
        let [index] = own[..] else {
            panic!("{probe} has {} places\n{listed}", own.len());
        };
        let digits = places[index].split(',').next().unwrap_or_default();
        let place = u64::from_str_radix(digits, 16).expect("an address");
        assert!(place > 0x1000, "{probe}: {place:#x}");
        let parts: Vec<&str> = arguments[index].split(' ').collect();
        let in_registers = parts.iter().all(|part| part.starts_with("8@"));
        assert!(parts.len() == count && in_registers, "{probe}: {parts:?}");
    }
}

#[test]
fn programs_that_are_bound_at_start_start() {
    // perftest links libmlx5 and libefa. The distribution's own libraries, which this folder does not hide,
    // import most names of the private node.
    let help = run("ib_write_bw", &["--help"], "perftest");
    assert!(text(&help).contains("ib_write_bw"), "{}", text(&help));
    let version = run("ib_atomic_lat", &["--version"], "perftest");
    assert!(text(&version).contains("Version"), "{}", text(&version));
}

#[test]
fn the_loopback_interface_is_a_device() {
    let devices = run("ibv_devices", &[], "ibverbs-utils");
    assert!(text(&devices).contains("rk_lo"), "{}", text(&devices));
    let info = run("ibv_devinfo", &["-v", "-d", "rk_lo"], "ibverbs-utils");
    let shown = text(&info);
    assert!(info.status.success(), "{shown}");
    for expected in [
        "PORT_ACTIVE",
        "Ethernet",
        "::ffff:127.0.0.1, RoCE v2",
        "active_mtu:\t\t4096",
    ] {
        assert!(
            shown.contains(expected),
            "{expected:?} is missing in\n{shown}"
        );
    }
}
