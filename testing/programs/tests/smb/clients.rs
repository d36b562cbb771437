//! Samba's own client and tests through SMB Direct: dial, gateway, Samba.

use std::collections::BTreeMap;
use std::path::Path;

use programs::SmbChain;
use programs::samba::{self, SHARE, results, smbclient, smbtorture};

/// How long one run of a program may take.
const SECONDS: u64 = 300;
/// Set to `all`: every test of the list, in place of a few. That takes a quarter of an hour.
const WHICH: &str = "ROCKERY_TEST_SMBTORTURE";
/// The tests that ksmbd passes, and those of channels, signing and encryption.
const ALL: &str = include_str!("smbtorture.list");
/// A few that touch what a gateway changes: sizes, compounds, asynchronous answers and their cancellation,
/// several connections of one session, signed and encrypted messages.
const FEW: [&str; 11] = [
    "smb2.connect",
    "smb2.read.eof",
    "smb2.compound.related1",
    "smb2.compound.compound-padding",
    "smb2.lock.async",
    "smb2.lock.cancel",
    "smb2.session.reconnect1",
    "smb2.session.bind1",
    "smb2.session.signing-aes-128-gmac",
    "smb2.session.encryption-aes-128-gcm",
    "smb2.multichannel.generic",
];

/// The content of each file of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let read = |path: &Path| std::fs::read(path).expect("a file");
    entries
        .map(|it| {
            (
                it.file_name().to_string_lossy().into_owned(),
                read(&it.path()),
            )
        })
        .collect()
}

#[test]
fn a_hundred_files_go_there_and_back() {
    let chain = SmbChain::new();
    let folder = tempfile::TempDir::new().unwrap();
    let from = folder.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for number in 0..100_usize {
        let length = number * number * number;
        let content: Vec<u8> = (0..length)
            .map(|at| ((at + number).wrapping_mul(0x9e37_79b1) >> 7) as u8)
            .collect();
        std::fs::write(from.join(format!("file{number}")), content).unwrap();
    }
    let sent = contents(&from);
    assert_eq!(sent.len(), 100);
    for protection in ["off", "sign", "encrypt"] {
        let to = folder.path().join(protection);
        std::fs::create_dir(&to).unwrap();
        let commands = format!(
            "prompt off; mkdir {protection}; cd {protection}; lcd {}; mput file*; lcd {}; mget file*",
            from.display(),
            to.display()
        );
        let option = format!("--client-protection={protection}");
        let argv = smbclient(chain.address(), SHARE, &[&option], &commands);
        let finished = samba::run(&chain.namespace, &argv, SECONDS).unwrap();
        let said = finished.expect_success().output;
        for (how, folder) in [
            ("written", chain.samba.share().join(protection)),
            ("read", to),
        ] {
            let differs = difference(&sent, &contents(&folder));
            assert!(
                differs.is_empty(),
                "{how}, {protection}: {differs:?}\n{said}"
            );
        }
    }
}

/// What differs between the files that are expected and those that are there, file by file.
fn difference(
    expected: &BTreeMap<String, Vec<u8>>,
    found: &BTreeMap<String, Vec<u8>>,
) -> Vec<String> {
    let missing = |name: &String| format!("{name} is missing");
    let unequal = |name: &String, (own, other): (&Vec<u8>, &Vec<u8>)| {
        let at = own.iter().zip(other).position(|(one, two)| one != two);
        format!(
            "{name}: {} bytes of {}, unequal at {at:?}",
            other.len(),
            own.len()
        )
    };
    let expected_files = expected
        .iter()
        .filter_map(|(name, own)| match found.get(name) {
            None => Some(missing(name)),
            Some(other) => (own != other).then(|| unequal(name, (own, other))),
        });
    let unknown = found.keys().filter(|name| !expected.contains_key(*name));
    expected_files
        .chain(unknown.map(|name| format!("{name} is unknown")))
        .collect()
}

#[test]
fn samba_answers_smbtorture_through_smb_direct_as_it_does_directly() {
    let chain = SmbChain::new();
    let is_all = std::env::var(WHICH).is_ok_and(|which| which == "all");
    let tests: Vec<&str> = if is_all {
        ALL.lines().collect()
    } else {
        FEW.to_vec()
    };
    let mut different = Vec::new();
    let mut count = 0;
    for test in tests {
        let run = |server| {
            let argv = smbtorture(server, test);
            samba::run(&chain.namespace, &argv, SECONDS)
                .map(|done| (results(&done.output), done.output))
        };
        let (directly, _) = run(chain.samba.address()).expect("it ends");
        let (through, output) = run(chain.address()).expect("it ends");
        assert!(!directly.is_empty(), "{test} printed no result");
        count += directly.len();
        // The whole list takes long: what was seen is shown as it comes (--nocapture).
        println!(
            "{test}: {} results, {}",
            directly.len(),
            if directly == through {
                "equal"
            } else {
                "different"
            }
        );
        if directly != through {
            let tail: Vec<&str> = output.lines().rev().take(15).collect();
            different.push(format!(
                "{test}: directly {directly:?}, through {through:?}\n{}",
                tail.join("\n")
            ));
        }
    }
    println!("{count} results, {} different", different.len());
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn the_benchmark_measures_every_transport_and_leaves_nothing() {
    let rockery = programs::Rockery::built();
    let folder = tempfile::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut bench = std::process::Command::new(rockery.path());
    bench.args([
        "bench", "smb", "--quick", "--part", "copy", "--size", "16MiB", "--folder",
    ]);
    bench
        .arg(folder.path())
        .arg("--json")
        .arg(path("json"))
        .arg("--html")
        .arg(path("html"));
    let done = bench.output().unwrap();
    let output = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "{output}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path("json")).unwrap()).unwrap();
    let series = report["series"].as_array().unwrap();
    assert_eq!(series.len(), 5, "{output}");
    assert!(
        series
            .iter()
            .all(|it| it["jobs"].as_array().is_some_and(|jobs| jobs.len() == 4)),
        "{report}"
    );
    let page = std::fs::read_to_string(path("html")).unwrap();
    assert!(page.contains("SMB Direct over UDP") && page.contains("626.0"));
    let mut left: Vec<String> = contents(folder.path()).into_keys().collect();
    left.sort();
    assert_eq!(left, ["html", "json"]);
}
