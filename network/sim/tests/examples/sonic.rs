//! A switch that runs SONiC: its counters, as its commands show them.

use super::run;
use sim::report::vendor_tables;

/// The cells of a port's row in a command's table.
fn row<'a>(text: &'a str, command: &str, port: &str) -> Vec<&'a str> {
    let lines = text
        .lines()
        .skip_while(|line| *line != format!("$ {command}"))
        .skip(1);
    let mut lines = lines.take_while(|line| !line.starts_with('$'));
    let row = lines.find(|line| line.split_whitespace().next() == Some(port));
    row.unwrap_or_else(|| panic!("{command}: no row of {port}\n{text}"))
        .split_whitespace()
        .collect()
}

fn number(cell: &str) -> u64 {
    cell.replace(',', "")
        .parse()
        .unwrap_or_else(|_| panic!("{cell}"))
}

#[test]
fn its_commands_show_what_happened() {
    let ran = run("sonic/lab.toml", &[]);
    assert_eq!(ran.dropped(), 0, "DSCP 3 is lossless");
    let printed = vendor_tables(&ran.experiment, &ran.results);
    assert_eq!(
        (printed[0].switch.as_str(), printed[0].system),
        ("tor", "SONiC")
    );
    let text = &printed[0].text;
    let interface = |port: &str| row(text, "show interfaces counters", port);
    let port = |name: &str| {
        ran.report
            .ports
            .iter()
            .find(|port| port.port == name)
            .unwrap()
    };
    // RX_ERR of the worn cable's port, and of no other.
    let errors = number(interface("Ethernet12")[6]);
    assert!(
        errors > 0 && errors == port("tor:Ethernet12").fcs_errors,
        "{text}"
    );
    assert_eq!(number(interface("Ethernet4")[6]), 0);
    // All sent packets arrived, except those that were damaged or still on their way.
    let arrived = number(interface("Ethernet4")[2]);
    assert!(
        port("sender0").packets - arrived <= 2,
        "{arrived} of {}",
        port("sender0").packets
    );
    let part: f64 = interface("Ethernet0")[12]
        .trim_end_matches('%')
        .parse()
        .unwrap();
    let load = 100.0 * port("tor:Ethernet0").load;
    assert!(
        part > 20.0 && (part - load).abs() < 1.0,
        "{part} % by bytes, {load:.1} with preamble and gap"
    );
    assert!(ran.report.switches[0].pauses_sent > 0);
    let paused = |table: &str| -> u64 {
        ["Ethernet4", "Ethernet8", "Ethernet12"]
            .map(|port| number(row(text, table, port)[4]))
            .iter()
            .sum()
    };
    let sent: u64 = ran
        .report
        .ports
        .iter()
        .flat_map(|port| port.pfc_sent.get(3))
        .sum();
    assert!(sent > 0 && text.contains("  Port Tx    PFC0"), "{text}");
    assert!(paused("show priority-group watermark shared") > 0, "{text}");
    let marked = row(text, "show queue wredcounters", "Ethernet0");
    assert_eq!(marked[1], "UC0");
    let watermark = number(row(text, "show queue watermark unicast", "Ethernet0")[4]);
    assert!(watermark > 1 << 20, "ECN begins at 1 MiB: {watermark}");
    assert!(
        number(row(text, "show buffer_pool watermark", "ingress_lossless_pool")[1])
            >= watermark / 2
    );
}

#[test]
fn the_class_that_its_maps_give_to_dscp_26_loses_and_says_where() {
    let ran = run(
        "sonic/lab.toml",
        &[
            ("nic.default.dscp", "26"),
            ("nic.default.congestion", "off"),
        ],
    );
    assert!(ran.dropped() > 0);
    let text = &vendor_tables(&ran.experiment, &ran.results)[0].text;
    let refused: u64 = ["Ethernet4", "Ethernet8", "Ethernet12"]
        .map(|port| number(row(text, "show priority-group drop counters", port)[1]))
        .iter()
        .sum();
    assert_eq!(refused, ran.dropped(), "{text}");
    let discarded = ["Ethernet4", "Ethernet8", "Ethernet12"]
        .map(|port| number(row(text, "show interfaces counters", port)[7]));
    assert_eq!(discarded.iter().sum::<u64>(), refused);
}
