//! The target of an NVMe-oF host, as the command line names it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use ::nvme::Nqn;
use ::nvme::host::{Client, HostError, KEEP_ALIVE_TIMEOUT, Options, Tls, Transport, discover};
use ::nvme::tls::{Derivation, Version};
use wire::nvme::tcp::Digests;

use crate::Error;
use crate::args::tcp_congestion;
use crate::credentials::CredentialArgs;

/// The longest keep alive timeout: KATO has 32 bits, in milliseconds.
const KEEP_ALIVE_SECONDS_MAX: i64 = u32::MAX as i64 / 1000;

/// A target, and how to connect to it.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// IP address or host name of the target, and its port: server:4420, [fe80::1%eth0]:4420.
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// Transport: `tcp` or `rdma`.
    #[arg(long, value_name = "NAME", default_value_t)]
    transport: Transport,
    /// Over RDMA, use the distribution's libibverbs and librdmacm, for hardware adapters.
    #[arg(long)]
    system_verbs: bool,
    /// NQN of the subsystem; the only one that the target's discovery service lists, if not given. Another
    /// name than an NQN is sent as it is, for targets that accept it.
    #[arg(long, value_name = "NQN", value_parser = Nqn::as_typed)]
    subsystem: Option<Nqn>,
    /// NQN of this host. Default: one that is derived from the machine's identifier, the same for all users.
    /// Another name than an NQN is sent as it is, for targets that accept it.
    #[arg(long, value_name = "NQN", value_parser = Nqn::as_typed)]
    host: Option<Nqn>,
    /// Keep alive timeout in seconds: the target may end the controller of a host that was silent for so
    /// long. The host sends Keep Alive at half of it. 0 is no timeout.
    #[arg(long, value_name = "SECONDS", default_value_t = KEEP_ALIVE_TIMEOUT.as_secs() as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=KEEP_ALIVE_SECONDS_MAX))]
    keep_alive_tmo: u32,
    /// Request header and data digests (CRC-32C) over TCP.
    #[arg(long)]
    digests: bool,
    /// TCP congestion control algorithm of the kernel, or `system` for the system's default.
    #[arg(long, value_name = "NAME", default_value = "system", value_parser = tcp_congestion)]
    congestion: String,
    /// Credentials of this host.
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Version of the TLS PSK identity: 1, or 0 for targets that support no later one.
    #[arg(long, value_name = "VERSION", default_value = "1", value_parser = ["0", "1"])]
    tls_identity: String,
    /// Derive the TLS PSK as libnvme before 1.16 does, for targets that know only this derivation. Servers of
    /// rockery accept both.
    #[arg(long)]
    tls_key_compat: bool,
    /// The only subsystem of the target. It is looked up once, so that a later connection of the same process
    /// does not get another disk.
    #[arg(skip)]
    found: OnceLock<Nqn>,
}

impl Target {
    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        link::address::host(&self.address, None).map_err(Error::Address)
    }

    pub(crate) fn options(&self) -> Options {
        let host = self.host.clone().unwrap_or_else(Nqn::this_host);
        Options {
            transport: self.transport,
            host_id: host.to_host_id(),
            host,
            keep_alive_timeout: Duration::from_secs(self.keep_alive_tmo.into()),
            digests: Digests {
                header: self.digests,
                data: self.digests,
            },
            congestion: Some(self.congestion.clone()).filter(|name| name != "system"),
            secrets: self.credentials.secrets(),
            tls: self.credentials.tls_key().map(|key| Tls {
                key,
                version: self.version(),
                derivation: self.derivation(),
            }),
        }
    }

    fn version(&self) -> Version {
        if self.tls_identity == "0" {
            Version::Names
        } else {
            Version::Digest
        }
    }

    fn derivation(&self) -> Derivation {
        if self.tls_key_compat {
            Derivation::Compat
        } else {
            Derivation::Rfc8446
        }
    }

    /// Whether the target is reached over rockery's devices.
    pub(crate) fn is_over_our_devices(&self) -> bool {
        self.transport == Transport::Rdma && !self.system_verbs
    }

    pub(crate) fn location(&self) -> &str {
        &self.address
    }

    /// The subsystem that was named, or the only one of the target.
    ///
    /// # Errors
    /// When the discovery service does not answer, or lists none or several.
    pub(crate) fn subsystem(&self) -> Result<&Nqn, Error> {
        if let Some(known) = self.subsystem.as_ref().or_else(|| self.found.get()) {
            return Ok(known);
        }
        let listed = discover(self.address()?, &self.options());
        let listed = listed.map_err(|source| match source {
            // The discovery subsystem has an NQN: the name is the host's.
            HostError::Name { .. } => Error::Host(source),
            HostError::Io(_) => self.unreachable(source),
            _ => Error::Discovery {
                address: self.address.clone(),
                source,
            },
        })?;
        let listed = listed.into_iter().filter(|it| it.kind == "nvm");
        let names: BTreeSet<Nqn> = listed
            .filter_map(|it| Nqn::as_typed(&it.subsystem).ok())
            .collect();
        let only = only(names).map_err(|names| Error::Subsystems {
            address: self.address.clone(),
            names,
        })?;
        Ok(self.found.get_or_init(|| only))
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// The arguments with which another process connects to the same target.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![self.address.clone()];
        for (option, value) in [
            ("--transport", self.transport.to_string()),
            ("--keep-alive-tmo", self.keep_alive_tmo.to_string()),
            ("--congestion", self.congestion.clone()),
            ("--tls-identity", self.tls_identity.clone()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        for (option, name) in [("--subsystem", &self.subsystem), ("--host", &self.host)] {
            words.extend(
                name.iter()
                    .flat_map(|name| [option.to_owned(), name.to_string()]),
            );
        }
        words.extend(self.credentials.words());
        let flags = [
            ("--digests", self.digests),
            ("--system-verbs", self.system_verbs),
            ("--tls-key-compat", self.tls_key_compat),
        ];
        words.extend(
            flags
                .iter()
                .filter(|(_, is_set)| *is_set)
                .map(|(flag, _)| (*flag).to_owned()),
        );
        words
    }

    pub(crate) fn connect(&self) -> Result<Client, Error> {
        Client::connect(self.address()?, self.subsystem()?, &self.options())
            .map_err(|source| self.unreachable(source))
    }

    /// The error of a connection, with the address where there was none.
    pub(crate) fn unreachable(&self, source: HostError) -> Error {
        match source {
            HostError::Io(source) => Error::Unreachable {
                address: self.address.clone(),
                advice: self.advice(&source),
                source,
            },
            other => Error::Host(other),
        }
    }

    /// What to do about an error of the connection.
    fn advice(&self, source: &std::io::Error) -> &'static str {
        use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, UnexpectedEof};
        let is_plain = self.transport == Transport::Tcp && self.credentials.tls_key().is_none();
        match source.kind() {
            ConnectionRefused => {
                "; no program listens there: is the target running, and the port right?"
            }
            ConnectionReset | UnexpectedEof if is_plain => {
                "; a port of TLS closes connections without it: give --tls-key"
            }
            _ => "",
        }
    }
}

/// The only name, or all of them in a sentence.
fn only(names: BTreeSet<Nqn>) -> Result<Nqn, String> {
    let mut names = names.into_iter();
    match (names.next(), names.len()) {
        (Some(name), 0) => Ok(name),
        (None, _) => Err("no subsystem that this host may use".to_owned()),
        (Some(first), _) => {
            let all: Vec<String> = std::iter::once(first)
                .chain(names)
                .map(String::from)
                .collect();
            Err(format!("{} subsystems: {}", all.len(), all.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_subsystems_is_not_chosen() {
        let names = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let (one, other) = ("nqn.2024-01.org.example:a", "nqn.2024-01.org.example:b");
        assert_eq!(only(names(&[one])), Ok(one.parse().unwrap()));
        assert!(only(names(&[])).unwrap_err().contains("no subsystem"));
        let several = only(names(&[one, other])).unwrap_err();
        assert!(
            several.contains(one) && several.contains(other),
            "{several}"
        );
    }
}
