//! `rockery doctor probe`: tests whether and how RoCEv2 reaches named hosts; or answers such tests.

mod expect;
mod listen;
mod load;
mod matrix;
mod mesh;
mod network;
mod nonce;
mod page;
mod speaker;

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

use ::sim::report::counted;
use doctor::Finding;
use doctor::probe::{
    Expected, LoadShape, Observed, Reach, Share, load_findings, measured, share_findings, survey,
    survey_findings,
};

use crate::{Error, output};
pub(crate) use expect::hostname;
use load::Loads;
pub(crate) use matrix::matrix;
use network::Receiver;

/// The longest load that a request may have, in seconds.
const SECONDS_MAX: u32 = 10;

const SECONDS: std::ops::RangeInclusive<i64> = 1..=SECONDS_MAX as i64;

/// The options of `rockery doctor probe`.
#[derive(Debug, clap::Args)]
pub(crate) struct Probe {
    /// Hosts to probe: packets are sent to no others
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    pub(crate) hosts: Vec<String>,
    /// Answer probes of other hosts until Ctrl-C, with what arrives: DSCP, ECN and TTL
    #[arg(long)]
    pub(crate) listen: bool,
    /// Probe all hosts of the list and answer them meanwhile. Each of them runs the same command; rockery
    /// doctor matrix puts their JSON together
    #[arg(long, conflicts_with_all = ["listen", "load"])]
    pub(crate) mesh: bool,
    /// With --mesh: how long to wait for hosts that do not answer yet
    #[arg(long, value_name = "SECONDS", default_value_t = 20, requires = "mesh")]
    pub(crate) wait: u32,
    /// With --listen: hosts that may request load
    #[arg(long, value_name = "HOST", requires = "listen")]
    pub(crate) from: Vec<String>,
    /// Have each host send at this rate to this machine, alone and all at once: 500Mb/s, 2Gb/s. Below the
    /// speed of a link, and two of them above it. With --listen: the highest rate that is sent
    #[arg(long, value_name = "RATE", value_parser = kbps)]
    pub(crate) load: Option<u32>,
    /// Duration of each load, 10 seconds at most
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(SECONDS))]
    pub(crate) seconds: u32,
    /// With --load: the parts of the link that classes are to have while all of them send, in percent by
    /// DSCP: 26=50,0=50. Each class needs a host that listens
    #[arg(long, value_name = "DSCP=PERCENT", value_delimiter = ',', value_parser = expect::share)]
    #[arg(requires = "load", conflicts_with = "listen")]
    pub(crate) expect_share: Vec<(u8, u32)>,
    /// With --load: the same from the weights of a fabric file, for the classes of --dscp and --beside
    #[arg(long, value_name = "FILE", requires = "load", conflicts_with_all = ["listen", "expect_share"])]
    pub(crate) fabric: Option<PathBuf>,
    /// The name of this machine in the fabric file, if it is not the host name
    #[arg(long = "as", value_name = "HOST", requires = "fabric")]
    pub(crate) own_name: Option<String>,
    /// DSCP of the class that is sent beside data
    #[arg(long, value_name = "DSCP", default_value_t = 0, requires = "fabric")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..64))]
    pub(crate) beside: u8,
    /// DSCP of data in the lossless class
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u8).range(0..64))]
    pub(crate) dscp: u8,
    /// Speed of the links in Gb/s, for the simulated consequences
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=800))]
    pub(crate) gbps: u32,
    /// UDP port of cooperating ends, where the adapter takes 4791 itself; the REQ goes to 4791 always
    #[arg(long, default_value_t = wire::ROCE_PORT)]
    pub(crate) port: u16,
    /// Print observations and findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Probes hosts, or answers probes.
///
/// # Errors
/// Findings, with status 1; a port that is in use, names that are not resolved, with status 2.
pub(crate) fn act(what: &Probe) -> Result<(), Error> {
    if what.listen {
        return listen::answer(what);
    }
    if what.mesh {
        let row = mesh::run(what)?;
        return judge(what, &row.from, &row.observed, &Loaded::default());
    }
    let targets: Vec<(String, IpAddr)> = what
        .hosts
        .iter()
        .map(|host| resolved(host).map(|address| (host.clone(), address)))
        .collect::<Result<_, _>>()?;
    let expected = expect::shares(what)?;
    let receiver = Receiver::open(what.port)?;
    let dscps = [what.dscp, 48, 0];
    let mut observed = Vec::new();
    for (host, address) in &targets {
        output::stage!("rockery: asking {host}");
        let mut network = receiver.to(*address)?;
        observed.push(survey(host, *address, &dscps, &mut network));
    }
    let loaded = under_load(&receiver, &observed, &expected, what)?;
    judge(what, &hostname().unwrap_or_default(), &observed, &loaded)
}

/// Prints what was observed from this machine, with what is wrong.
fn judge(what: &Probe, from: &str, observed: &[Observed], loaded: &Loaded) -> Result<(), Error> {
    let per_host: Vec<Vec<Finding>> = observed
        .iter()
        .map(|observed| survey_findings(observed, what.gbps))
        .collect();
    let shape = LoadShape {
        gbps: what.gbps,
        dscp: what.dscp,
    };
    let rules: Vec<Vec<&str>> = per_host
        .iter()
        .map(|found| found.iter().map(|finding| finding.rule).collect())
        .collect();
    let mut found: Vec<Finding> = per_host.into_iter().flatten().collect();
    found.extend(load_findings(
        &loaded.streams.alone,
        &loaded.streams.together,
        shape,
    ));
    if let Ok(shares) = &loaded.shares {
        found.extend(share_findings(shares, &loaded.streams.classes, shape));
    }
    let seen = page::Seen {
        from,
        observed,
        rules: &rules,
    };
    page::print(what, &seen, loaded, &found)?;
    let not_sent = |observed: &&Observed| observed.reach == Reach::NotSent;
    if let Some(observed) = observed.iter().find(not_sent) {
        return Err(Error::Unread(format!(
            "{}: {}",
            observed.host,
            observed.log.join("; ")
        )));
    }
    match found.len() {
        0 => Ok(()),
        count => Err(Error::Findings(counted(
            count as u64,
            "finding",
            "findings",
        ))),
    }
}

/// Streams, and the shares of classes in them: none where none are expected, or why they are not known.
#[derive(Debug)]
struct Loaded {
    streams: Loads,
    shares: Result<Vec<Share>, String>,
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            streams: Loads::default(),
            shares: Ok(Vec::new()),
        }
    }
}

fn under_load(
    receiver: &Receiver,
    observed: &[Observed],
    expected: &[Expected],
    what: &Probe,
) -> Result<Loaded, Error> {
    let Some(kbps) = what.load else {
        return Ok(Loaded::default());
    };
    let cooperating = observed
        .iter()
        .filter(|host| host.cooperates.is_some())
        .count();
    let obstacle = (!expected.is_empty())
        .then(|| expect::obstacle(expected, cooperating))
        .flatten();
    let dscps: Vec<u8> = match obstacle {
        None => expected.iter().map(|expected| expected.dscp).collect(),
        Some(_) => Vec::new(),
    };
    output::stage!(
        "rockery: sending loads of {} s to {cooperating} hosts that listen",
        what.seconds
    );
    let streams = load::run(receiver, observed, kbps, &dscps, what)?;
    let shares = match (obstacle, dscps.is_empty()) {
        (Some(why), _) => Err(why),
        (None, true) => Ok(Vec::new()),
        (None, false) => measured(&streams.classes, expected).map_err(str::to_owned),
    };
    Ok(Loaded { streams, shares })
}

/// The first address of a name.
fn resolved(host: &str) -> Result<IpAddr, Error> {
    let mut found = (host, 0).to_socket_addrs().map_err(|error| {
        Error::Unread(format!(
            "{host}: {error}: write a name or an address, without port"
        ))
    })?;
    let none = || Error::Unread(format!("{host}: the name has no address"));
    let address = found.next().ok_or_else(none)?;
    if link::address::scope(&address) != 0 {
        return Err(Error::Unread(format!(
            "{host}: link-local addresses cannot be probed: write an address of the host without a zone"
        )));
    }
    Ok(address.ip().to_canonical())
}

/// Reads a rate in kb/s.
fn kbps(text: &str) -> Result<u32, String> {
    let wrong =
        || format!("\"{text}\" is no rate: write 500Mb/s or 2.5Gb/s, from 8kb/s to 400Gb/s");
    let units = [("Gb/s", 1e6), ("Mb/s", 1e3), ("kb/s", 1.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))
        .ok_or_else(wrong)?;
    let kbps = number.trim().parse::<f64>().map_err(|_| wrong())? * unit;
    if (8.0..=4e8).contains(&kbps) {
        Ok(kbps as u32)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::kbps;

    #[test]
    fn rates_have_a_unit_and_bounds() {
        assert_eq!(kbps("2.5Gb/s"), Ok(2_500_000));
        assert_eq!(kbps("40 Mb/s"), Ok(40_000));
        for wrong in ["40", "Mb/s", "-1Gb/s", "1kb/s", "500Gb/s", "NaNGb/s"] {
            assert!(kbps(wrong).is_err(), "{wrong}");
        }
    }
}
