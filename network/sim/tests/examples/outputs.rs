//! Tables, CSV and captures.

use super::{run, run_with};
use fabric::Span;
use sim::report::columns::{Values, flow_columns, hop_columns, port_columns, sample_columns};
use sim::report::{Report, flows_csv, number_settings, ports_csv, table, write_pcap};
use wire::{Message, Packet, Pause, split_icrc};

#[test]
fn rows_are_flows_and_ports() {
    let ran = run("incast.toml", &[]);
    let csv = flows_csv(&ran.report, None, true);
    assert_eq!(csv.lines().count(), 17);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns));
    assert!(csv.contains("\nincast,h1,h0,10000000,0,"));
    assert!(ports_csv(&ran.report).contains("\ns0:0,h0,100000000000,"));
    let text = table(&ran.report);
    assert!(text.contains("incast       16    16"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&ran.report.json()).unwrap();
    assert_eq!(json["flows"].as_array().unwrap().len(), 16);
    assert!(json["workloads"][0]["slowdown"]["p99"].as_f64().unwrap() > 1.0);
}

#[test]
fn swept_settings_with_units_are_numbers_too() {
    let of = |buffer: &str, mtu: &str| {
        let mut report = run("incast.toml", &[("qos.default.buffer", buffer)]).report;
        report.settings = [("qos.default.buffer", buffer), ("nic.default.mtu", mtu)]
            .map(|(path, value)| (path.to_owned(), value.to_owned()))
            .to_vec();
        report
    };
    let mut reports = [(0, of("1200kB", "1024")), (1, of("4MiB", "512"))];
    number_settings(&mut reports);
    let rows: Vec<String> = reports
        .iter()
        .map(|(run, report)| flows_csv(report, Some(*run), *run == 0))
        .collect();
    let head = "run,qos.default.buffer,nic.default.mtu,qos.default.buffer_bytes,workload,";
    assert!(rows[0].starts_with(head), "{}", rows[0]);
    assert!(
        rows[0].contains("\n0,1200kB,1024,1200000,incast,h1,"),
        "{}",
        rows[0]
    );
    assert!(
        rows[1].starts_with("1,4MiB,512,4194304,incast,h1,"),
        "{}",
        rows[1]
    );
}

#[test]
fn ports_have_the_peak_that_the_table_shows() {
    let ran = run("incast.toml", &[]);
    let json: serde_json::Value = serde_json::from_str(&ran.report.json()).unwrap();
    let ports = json["ports"].as_array().unwrap();
    let queues = |port: &serde_json::Value| {
        let queues = port["queues"].as_array().unwrap().clone();
        queues
            .iter()
            .map(|queue| queue["peak_bytes"].as_u64().unwrap())
            .max()
    };
    for port in ports {
        assert_eq!(
            port["peak_queue_bytes"].as_u64(),
            Some(queues(port).unwrap_or(0)),
            "{port}"
        );
    }
    assert!(
        ports
            .iter()
            .any(|port| port["peak_queue_bytes"].as_u64() > Some(100_000))
    );
}

#[test]
fn a_capture_holds_whole_packets_with_their_icrc_and_pause_frames() {
    let ran = run_with(
        "crs504/ecn-off.toml",
        &[("duration", "1ms")],
        |experiment| {
            let (link, _) = experiment.port("sender0").unwrap();
            experiment.scenario.watch.captures = vec![link];
            experiment.scenario.watch.captured_max = 5000;
        },
    );
    let link = ran.experiment.scenario.watch.captures[0];
    let mut file = Vec::new();
    write_pcap(&mut file, &ran.experiment, link, &ran.results.captured).unwrap();
    let (mut at, mut data, mut pauses, mut last_ns) = (24, 0, 0, 0);
    while at < file.len() {
        let field =
            |index: usize| u32::from_le_bytes(file[at + 4 * index..][..4].try_into().unwrap());
        let ns = u64::from(field(0)) * 1_000_000_000 + u64::from(field(1));
        assert!(ns >= last_ns);
        last_ns = ns;
        let frame = &file[at + 16..at + 16 + field(2) as usize];
        at += 16 + frame.len();
        if frame[..6] == Pause::DESTINATION.0 {
            assert!(matches!(
                Pause::parse(&frame[14..]),
                Ok(Pause::Priorities(_))
            ));
            pauses += 1;
            continue;
        }
        let (headers, datagram) = wire::FrameHeaders::parse(frame).unwrap();
        let (transport, carried) = split_icrc(datagram).unwrap();
        let wire::Ip::V4(ip) = headers.ip else {
            panic!("not IPv4")
        };
        let mut icrc = wire::Icrc::over_ipv4(ip.to_bytes(), headers.udp.to_bytes());
        icrc.transport(transport);
        assert_eq!(icrc.finish(), carried);
        let (packet, _) = Packet::parse(transport).unwrap();
        data += u32::from(!matches!(packet.message, Message::Congestion));
    }
    assert!(
        data > 100 && pauses > 0,
        "{data} packets, {pauses} pause frames"
    );
}

/// Every number, text and list, with those that are left out where they are empty.
#[test]
fn reports_are_read_back_from_json() {
    for name in ["incast.toml", "crs504/ecn-off.toml"] {
        let ran = run_with(name, &[], |experiment| {
            experiment.scenario.watch.sample_every = Some(Span::from_us(50));
            experiment.scenario.watch.hops = true;
        });
        let text = ran.report.json();
        let again = Report::from_json(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(again == ran.report && again.json() == text, "{name}");
    }
    let error = Report::from_json("{}").unwrap_err().to_string();
    assert!(error.contains("missing field `title`"), "{error}");
}

#[test]
fn an_unknown_reason_for_drops_is_refused() {
    let mut report = run("incast.toml", &[]).report;
    report.ports[0].dropped = vec![("no-buffer", 3)];
    let text = report.json();
    assert!(Report::from_json(&text).unwrap() == report);
    let error = Report::from_json(&text.replace("no-buffer", "gremlins"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("gremlins"), "{error}");
}

/// Columns of one table have one length, and the report's values.
#[test]
fn tables_have_a_row_for_each_flow_port_hop_and_sample() {
    let ran = run_with("crs504/ecn-off.toml", &[], |experiment| {
        experiment.scenario.watch.sample_every = Some(Span::from_us(50));
        experiment.scenario.watch.hops = true;
    });
    let reports = [ran.report.clone(), ran.report];
    let one = &reports[0];
    let hops = one.flows.iter().map(|flow| flow.hops.len()).sum();
    let moments = one.series.iter().map(|series| series.at_us.len()).sum();
    for (columns, rows) in [
        (flow_columns(&reports), one.flows.len()),
        (hop_columns(&reports), hops),
        (port_columns(&reports), one.ports.len()),
        (sample_columns(&reports), moments),
    ] {
        assert!(
            rows > 0 && columns.iter().all(|(_, values)| values.len() == 2 * rows),
            "{rows} rows"
        );
        let run = |row: usize| i64::from(row >= rows);
        assert_eq!(
            columns[0],
            (
                "run".to_owned(),
                Values::Whole((0..2 * rows).map(run).collect())
            )
        );
    }
    let bytes = one
        .flows
        .iter()
        .chain(&one.flows)
        .map(|flow| flow.bytes as i64)
        .collect();
    let of_flows = flow_columns(&reports);
    let column = of_flows
        .iter()
        .find(|(name, _)| name == "bytes")
        .map(|(_, values)| values);
    assert_eq!(column, Some(&Values::Whole(bytes)));
}
