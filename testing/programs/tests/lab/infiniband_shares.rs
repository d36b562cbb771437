//! The page of file shares over InfiniBand: its commands, as they stand there.

use programs::live;
use std::fs;
use std::path::Path;

const SECONDS: u64 = 300;

/// The commands behind a heading of a page.
fn commands(page: &str, heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let text = fs::read_to_string(path).expect("a page");
    let section = text.split(heading).nth(1).expect("the heading");
    let block = section.split("```sh\n").nth(1).expect("commands");
    block.split("```").next().expect("their end").to_owned()
}

#[test]
fn files_are_copied_over_a_cable_as_the_page_says() {
    let page = commands(
        "infiniband.md",
        "## File shares over InfiniBand on one machine",
    );
    let said = live::script(
        &format!(
            "mkdir $D/bin\nln -s $R $D/bin/rockery\nPATH=$D/bin:$PATH\ncd $E/..\n{page}\nexit 0"
        ),
        SECONDS,
    );
    live::expect_lines(
        &said,
        &[
            "State: Active",
            "Base lid: 2",
            "SMINFO_MASTER",
            "\"H-0002c903000a1b20\"",
            "Link type       : IB",
            "receiver",
            "65536 bytes",
            "getting file \\file of size 104857600",
            "the files are equal",
        ],
    );
    let words = said
        .lines()
        .filter_map(|line| line.strip_prefix("PortRcvData:"))
        .filter_map(|count| count.trim_matches('.').parse::<u64>().ok());
    let words = words.max().expect("a count");
    assert!(words > 100 * (1 << 20) / 4, "{words} words for 100 MiB");
}
