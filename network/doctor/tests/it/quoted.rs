//! Findings quote lines about the ports that they are of.

use core::fmt::Write as _;
use doctor::{Marks, check, read_switch};

/// Ports that all differ: too many to read the whole text for each.
const PORTS: usize = 2_000;

/// Each finding of an MTU below that of RoCE, as the port and the line that it quotes.
fn small_mtus(text: &str) -> Vec<(String, String)> {
    let switch = read_switch("leaf", text).expect("a configuration");
    let found = check(&[], core::slice::from_ref(&switch), Marks::default());
    let small = found.into_iter().filter(|own| own.rule == "switch-mtu");
    let quoted = small.map(|own| {
        let port = own.place.rsplit(' ').next().unwrap_or_default().to_owned();
        (port, own.evidence[0].text.clone())
    });
    quoted.collect()
}

#[test]
fn each_of_many_ports_is_quoted_by_its_own_line() {
    let blocks = |text: &str, name: &str, below: &str| {
        let mut all = text.to_owned();
        for port in 1..=PORTS {
            let mtu = 600 + port % 1_500;
            let _ = writeln!(
                all,
                "interface {name}{port}{below}mtu {mtu}{below}qos trust dscp"
            );
        }
        all
    };
    let lines = |text: &str, line: &dyn Fn(usize, usize) -> String| {
        let lines = (1..=PORTS).map(|port| line(port, 600 + port % 1_500));
        text.to_owned() + &lines.collect::<String>()
    };
    let sonic = {
        let ports = (1..=PORTS).map(|port| {
            let mtu = 600 + port % 1_500;
            format!("\"Ethernet{port}\": {{\n \"speed\": \"100000\",\n \"mtu\": \"{mtu}\"}}")
        });
        let maps =
            (1..=PORTS).map(|port| format!("\"Ethernet{port}\": {{\n \"pfc_enable\": \"3\"}}"));
        let table = |rows: Vec<String>| rows.join(",\n");
        let (ports, maps) = (table(ports.collect()), table(maps.collect()));
        format!("{{\"PORT\": {{\n{ports}\n}}, \"PORT_QOS_MAP\": {{\n{maps}\n}}}}")
    };
    let texts = [
        (
            "eos",
            blocks(
                "! device: leaf (DCS-7060CX, EOS-4.30.1F)\n",
                "Ethernet",
                "\n   ",
            ),
        ),
        (
            "nvue",
            lines("", &|port, mtu| {
                format!("nv set interface swp{port} link mtu {mtu}\n")
            }),
        ),
        ("sonic", sonic),
    ];
    for (system, text) in texts {
        let found = small_mtus(&text);
        assert!(
            found.len() > PORTS / 2,
            "{system}: {} findings",
            found.len()
        );
        for (port, quoted) in found {
            let number: usize = port
                .trim_start_matches(char::is_alphabetic)
                .parse()
                .expect("a number");
            let mtu = (600 + number % 1_500).to_string();
            assert!(
                quoted.contains(&mtu),
                "{system}: {port} is quoted by {quoted:?}"
            );
        }
    }
}

#[test]
fn more_ports_than_a_switch_has_are_refused() {
    let ports = |count: usize| {
        (1..=count).map(|port| format!("nv set interface swp{port} link mtu 9216\n"))
    };
    let nvue = ports(16_385).collect::<String>();
    let routeros = (1..=16_385).map(|port| format!("set qsfp28-{port}-1 trust-l3=trust\n"));
    let routeros =
        "/interface ethernet switch qos port\n".to_owned() + &routeros.collect::<String>();
    let sonic = (1..=16_385).map(|port| format!("\"Ethernet{port}\": {{}}"));
    let sonic = sonic.collect::<Vec<_>>().join(",\n");
    let sonic = format!("{{\"PORT_QOS_MAP\": {{}}, \"PORT\": {{{sonic}}}}}");
    for text in [nvue, routeros, sonic] {
        let error = read_switch("leaf", &text).expect_err("too many ports");
        assert!(error.what.contains("16385 ports"), "{error}");
    }
    assert!(read_switch("leaf", &ports(16_384).collect::<String>()).is_ok());
}
