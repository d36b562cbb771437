//! Mistakes are named before the run.

use super::experiment;

const STAR: &str = "topology = { kind = \"star\", hosts = 6 }\n";

/// The error of a file with this text below the topology.
fn error(text: &str) -> String {
    match experiment(&format!("{STAR}{text}")) {
        Ok(_) => panic!("it was taken:\n{text}"),
        Err(error) => error,
    }
}

fn collective(more: &str) -> String {
    format!("[[collective]]\nname = \"it\"\nkind = \"all-reduce\"\nbytes = \"1MiB\"\n{more}\n")
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    let error = error(text);
    for part in expected {
        assert!(error.contains(part), "\"{part}\" is not in:\n{error}");
    }
}

#[test]
fn circles_are_named() {
    let three = "[[transfer]]\nname = \"a\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"1kB\"\nafter = [\"c\"]\n\
                 [[transfer]]\nname = \"b\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"1kB\"\nafter = [\"a\"]\n\
                 [[transfer]]\nname = \"c\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"1kB\"\nafter = [\"b\"]\n";
    says(
        three,
        &["transfer[0].after", "each waits for the next: a, c, b, a"],
    );
    says(
        &collective("after = [\"it\"]"),
        &["each waits for the next: it, it"],
    );
}

#[test]
fn names_that_are_missing_are_named() {
    says(
        &collective("after = [\"other\"]"),
        &["after[0]", "called \"other\"", "there are it"],
    );
    says(&collective("after = [\"x*\"]"), &["called \"x*\""]);
    says(
        &collective("group = \"tp\""),
        &["no group is called \"tp\"", "[group.tp]"],
    );
    let with_group = format!(
        "[group.dp]\nhosts = [\"h*\"]\n{}",
        collective("group = \"tp\"")
    );
    says(&with_group, &["there are dp"]);
    says(
        "[[transfer]]\nname = \"a\"\nfrom = \"h0\"\nto = \"h9\"\nbytes = \"1kB\"\n",
        &["transfer[0].to", "no host is called \"h9\""],
    );
    let twice = format!("{}{}", collective(""), collective(""));
    says(
        &twice,
        &[
            "collective[1].name",
            "another collective or transfer is called \"it\"",
        ],
    );
}

#[test]
fn groups_have_each_host_once_and_two_at_least() {
    let group = |hosts: &str, more: &str| {
        format!(
            "[group.g]\nhosts = {hosts}\n{}",
            collective(&format!("group = \"g\"\n{more}"))
        )
    };
    says(
        &group("[\"h*\", \"h3\"]", ""),
        &["group.g.hosts", "h3 is in it twice"],
    );
    says(
        &group("[\"h3\"]", ""),
        &[
            "collective[0].group",
            "has one rank, which exchanges nothing",
        ],
    );
    says(
        &group("[\"h[0-1]\", \"h7\"]", ""),
        &["group.g.hosts[1]", "no host is called \"h7\""],
    );
    let broadcast = group("[\"h[0-1]\"]", "root = \"h5\"").replace("all-reduce", "broadcast");
    says(
        &broadcast,
        &["collective[0].root", "h5 is not in the group \"g\""],
    );
}

#[test]
fn sizes_and_counts_have_limits() {
    says(
        &collective("").replace("1MiB", "9500000TB"),
        &["bytes", "2^63 bytes or more"],
    );
    says(&collective("").replace("1MiB", "0B"), &["nothing is moved"]);
    says(
        &collective("").replace("bytes = \"1MiB\"\n", ""),
        &["bytes is missing"],
    );
    says(
        &collective("chunk = \"8B\""),
        &["chunk", "16 bytes to 1 GiB"],
    );
    says(&collective("").replace("1MiB", "9000000TB"), &["chunks"]);
    says(
        &collective("chunk = \"1KiB\"\nslices = 100"),
        &["slices", "not cut into 100"],
    );
    says(&collective("credit = 0"), &["credit"]);
    says(&collective("channels = 65"), &["channels", "1 to 64"]);
    says(&collective("repeat = 0"), &["repeat", "it is never done"]);
    says(
        &collective("repeat = 4000000000"),
        &["repeat", "more than 16777216 repetitions"],
    );
    says(
        &collective("compute = \"2000min\""),
        &["compute", "more than an hour"],
    );
    says(
        &collective("start-jitter = \"2000min\""),
        &["start-jitter", "more than an hour"],
    );
    says(
        &collective("compute = \"1min\"\nrepeat = 100000"),
        &["collective[0]", "more than ten days"],
    );
    says(&collective("start = \"40000min\""), &["more than ten days"]);
    let many = collective("channels = 64").replace("all-reduce", "all-to-all");
    let large = format!("topology = {{ kind = \"fat-tree\", k = 16 }}\n{many}");
    let error = experiment(&large).err().unwrap();
    assert!(
        error.contains("too many queue pairs or messages"),
        "{error}"
    );
}

#[test]
fn algorithms_that_do_not_fit_are_refused_with_the_reason() {
    let of = |kind: &str, algorithm: &str| {
        collective(&format!("algorithm = \"{algorithm}\"")).replace("all-reduce", kind)
    };
    says(
        &of("all-to-all", "ring"),
        &["all-to-all has no algorithm ring", "write direct"],
    );
    says(
        &of("broadcast", "direct"),
        &["broadcast has no algorithm direct"],
    );
    says(
        &of("all-gather", "halving-doubling"),
        &["6 ranks are no power of two"],
    );
    assert!(
        experiment(&format!("{STAR}{}", of("all-reduce", "halving-doubling"))).is_ok(),
        "it is folded"
    );
    says(
        &of("all-reduce", "double-tree\"\nchannels = 3\nprotocol = \"ll"),
        &["channels", "an even number"],
    );
    says(
        &of("barrier", "ring"),
        &["algorithm", "barrier has no algorithm ring", "leave it out"],
    );
    says(
        "[[collective]]\nname = \"b\"\nkind = \"barrier\"\nbytes = \"1B\"\n",
        &["a barrier moves no data"],
    );
    says(
        &collective("root = \"h1\""),
        &["root", "no rank is the root"],
    );
}

/// Only packets tell a host what has happened elsewhere.
#[test]
fn what_no_own_host_takes_part_in_cannot_be_waited_for() {
    let text = "[[transfer]]\nname = \"a\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"1kB\"\n\
                [[transfer]]\nname = \"b\"\nfrom = \"h2\"\nto = \"h3\"\nbytes = \"1kB\"\nafter = [\"a\"]\n";
    says(
        text,
        &[
            "transfer[1].after",
            "no host of \"b\" takes part in \"a\"",
            "add a [[transfer]]",
        ],
    );
}
