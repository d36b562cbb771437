//! Connections on the wire and in captures, and the library's table of symbols.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::dissector::{read, watch};
use programs::machine::until;
use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Pair, Rockery, connection, symbols};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// Waits until a line of a watched interface is there.
#[track_caller]
fn expect(watch: &mut dyn Job, line: &str) {
    let in_time = until(SECONDS, || {
        Ok(watch.output()?.lines().any(|seen| seen.starts_with(line)))
    })
    .expect("its output");
    assert!(
        in_time,
        "{line:?} was not seen:\n{}",
        watch.output().expect("its output")
    );
}

/// Reports of version 3 of IGMP and 2 of MLD: of all sources from now on (4), and of none any more (3).
#[test]
fn joining_a_multicast_group_sends_igmp_and_mld_reports() {
    let pair = Pair::with_rockery(1500);
    let igmp = ["igmp.maddr", "igmp.record_type"];
    let mld = [
        "icmpv6.mldr.mar.multicast_address",
        "icmpv6.mldr.mar.record_type",
    ];
    for (filter, fields, group, address) in [
        ("igmp", igmp, "239.7.7.7", "10.88.0.1"),
        ("ip6", mld, "ff0e::4791", "fd88::1"),
    ] {
        let mut seen = watch(&pair.right, filter, &fields).unwrap();
        let mut member = pair
            .left
            .start(&["mckey", "-m", group, "-b", address])
            .unwrap();
        expect(&mut seen, &format!("{group}\t4"));
        member.kill().unwrap();
        // Its port is free when it is gone.
        member.wait(SECONDS).unwrap();
        expect(&mut seen, &format!("{group}\t3"));
        seen.kill().unwrap();
    }
}

/// `RDMA_OPTION_ID_TOS` is in the header of every packet of a connection, in both directions, and in the REQ.
#[test]
fn the_type_of_service_is_in_every_packet() {
    let pair = Pair::with_rockery(1500);
    // ECN has the lower two bits.
    let field = |line: &str, at: usize| {
        let text = line
            .split('\t')
            .nth(at)
            .unwrap_or_default()
            .trim_start_matches("0x");
        u32::from_str_radix(text, 16).ok()
    };
    for (header, server, client) in [
        (
            "ip.dsfield",
            "10.88.0.1",
            "ucmatose -t 40 -s 10.88.0.1 -c 2 -C 5",
        ),
        (
            "ipv6.tclass",
            "fd88::1",
            "ucmatose -t 40 -s fd88::1 -c 2 -C 5",
        ),
    ] {
        let fields = [
            header,
            "infiniband.cm.req.prim_tfcclass",
            "infiniband.bth.destqp",
        ];
        let mut seen = watch(&pair.right, "udp dst port 4791", &fields).unwrap();
        let server = format!("ucmatose -b {server} -c 2 -C 5");
        connection::expect((&pair.left, &server), (&pair.right, client), SECONDS);
        // Two connections, two queue pairs each, and the messages about them to queue pair 1.
        let receivers = |output: &str| {
            output
                .lines()
                .filter_map(|line| field(line, 2))
                .collect::<BTreeSet<u32>>()
        };
        let all = || Ok(receivers(&seen.output()?).len() == 5);
        assert!(until(SECONDS, all).unwrap(), "{}", seen.output().unwrap());
        let output = seen.output().unwrap();
        for line in output.lines().filter(|line| field(line, 2).is_some()) {
            assert_eq!(
                field(line, 0).map(|class| class & !3),
                Some(40),
                "{line}:\n{output}"
            );
        }
        let asked = output
            .lines()
            .filter_map(|line| field(line, 1))
            .collect::<Vec<_>>();
        assert!(
            asked.len() >= 2 && asked.iter().all(|class| *class == 40),
            "{output}"
        );
        seen.kill().unwrap();
    }
}

#[test]
fn options_reach_both_ends() {
    let libraries = ["-D_GNU_SOURCE", "-lrdmacm", "-libverbs"];
    let probe = Probe::compile_with("cc", "options", &libraries).unwrap();
    let said = Pair::with_rockery(1500)
        .left
        .run(&[&probe.path().to_string_lossy(), "10.88.0.1"], SECONDS)
        .unwrap();
    let expected = "path: traffic class 0x28, packet lifetime 20\n\
                    active side: traffic class 0x28, time-out 21\n\
                    passive side: traffic class 0x28\n\
                    flow labels: the same\n\
                    the passive side waits longer than usual\n\
                    ECE without a vendor: EINVAL\n\
                    ECE: done\n\
                    the passive side sees vendor 0x15b3, options 0x30000001\n\
                    the active side sees vendor 0x15b3, options 0x1\n\
                    established: done\n\
                    established twice: EINVAL\n\
                    rejected for its options: done\n\
                    status 35, \"why\"\n\
                    ECE beside a queue pair: EINVAL\n";
    assert_eq!(said.expect_success().output, expected);
}

/// CM messages are in a device's capture beside its packets, at both ends alike.
#[test]
fn captures_contain_the_cm_messages() {
    let folder = TempDir::new().unwrap();
    let pair = Pair::new(1500).unwrap();
    let file = |end: &str| folder.path().join(format!("{end}.pcapng"));
    let (left, right) = (file("left"), file("right"));
    let start = |namespace: &Namespace, file: &Path, line: &str| {
        let rockery = Rockery::built();
        let line = format!(
            "{} run --pcap {} -- {line}",
            rockery.path().display(),
            file.display()
        );
        namespace
            .start_plain(&line.split(' ').collect::<Vec<_>>())
            .unwrap()
    };
    let mut server = start(&pair.left, &left, "rping -s -a 10.88.0.1 -C 3 -v");
    let listening = || {
        let listed = pair
            .left
            .call(&format!("{} listeners", Rockery::built().word()))?;
        Ok(!listed.is_empty())
    };
    assert!(until(SECONDS, listening).unwrap());
    let mut client = start(&pair.right, &right, "rping -c -a 10.88.0.1 -C 3 -v");
    client.wait(SECONDS).unwrap().expect_success();
    server.wait(SECONDS).unwrap();
    let messages = |file: &Path, direction: u32| {
        let filter = format!("infiniband.mad && frame.packet_flags_direction == {direction}");
        read(
            file,
            &filter,
            &["infiniband.mad.attributeid", "infiniband.mad.transactionid"],
        )
        .unwrap()
    };
    let attributes = |lines: &[String]| -> BTreeSet<String> {
        lines
            .iter()
            .filter_map(|line| Some(line.split_once('\t')?.0.to_owned()))
            .collect()
    };
    let (asked, heard) = (messages(&right, 2), messages(&left, 1));
    // REQ, RTU, and the DREQs and DREPs that each end sent.
    assert!(
        attributes(&asked).is_superset(&["0x0010", "0x0014"].map(str::to_owned).into()),
        "{asked:?}"
    );
    assert_eq!(asked[..2], heard[..2]);
    assert_eq!(messages(&left, 2)[0], messages(&right, 1)[0], "the REP");
    assert!(messages(&left, 2)[0].starts_with("0x0013"));
    for path in [&left, &right] {
        let bad = read(
            path,
            "_ws.malformed || _ws.expert.severity >= 0x600000",
            &["frame.number"],
        )
        .unwrap();
        assert_eq!(bad, Vec::<String>::new(), "{}", path.display());
    }
}

/// The distribution's library: what the compiler links with.
fn distribution(name: &str) -> PathBuf {
    let output = Command::new("cc")
        .arg(format!("-print-file-name={name}"))
        .output()
        .expect("cc");
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    path.canonicalize()
        .unwrap_or_else(|_| panic!("{name}: the package librdmacm-dev has it"))
}

/// Every name of the distribution's library is in ours, in the same version.
#[test]
fn no_symbol_is_missing() {
    let ours = symbols::exported(&Rockery::built().path().with_file_name("librdmacm.so"))
        .expect("symbols");
    let theirs = symbols::exported(&distribution("librdmacm.so")).expect("symbols");
    assert!(theirs.len() > 60, "{theirs:?}");
    let missing: Vec<&String> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
