//! The target of an NVMe-oF host, as the command line names it.

use std::net::SocketAddr;
use std::time::Duration;

use ::nvme::Nqn;
use ::nvme::host::{Client, KEEP_ALIVE_TIMEOUT, Options, Tls, Transport};
use ::nvme::tls::{Derivation, Version};
use wire::nvme::tcp::Digests;

use crate::Error;
use crate::args::tcp_congestion;
use crate::credentials::CredentialArgs;

const NQN: &str = "nqn.2024-01.org.rockery:disk";
const HOST: &str = "nqn.2024-01.org.rockery:host";

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
    /// NQN of the subsystem. Another name is sent as it is, for targets that accept it.
    #[arg(long, value_name = "NQN", default_value = NQN, value_parser = Nqn::as_typed)]
    subsystem: Nqn,
    /// NQN of this host. Another name is sent as it is, for targets that accept it.
    #[arg(long, value_name = "NQN", default_value = HOST, value_parser = Nqn::as_typed)]
    host: Nqn,
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
}

impl Target {
    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        link::address::host(&self.address, None).map_err(Error::Address)
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            transport: self.transport,
            host: self.host.clone(),
            host_id: self.host.to_host_id(),
            keep_alive_timeout: Duration::from_secs(self.keep_alive_tmo.into()),
            digests: Digests { header: self.digests, data: self.digests },
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
        if self.tls_identity == "0" { Version::Names } else { Version::Digest }
    }

    fn derivation(&self) -> Derivation {
        if self.tls_key_compat { Derivation::Compat } else { Derivation::Rfc8446 }
    }

    /// Whether the target is reached over rockery's devices.
    pub(crate) fn is_over_our_devices(&self) -> bool {
        self.transport == Transport::Rdma && !self.system_verbs
    }

    pub(crate) fn place(&self) -> &str {
        &self.address
    }

    pub(crate) fn subsystem(&self) -> &Nqn {
        &self.subsystem
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// The arguments with which another process connects to the same target.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![self.address.clone()];
        for (option, value) in [
            ("--transport", self.transport.to_string()),
            ("--subsystem", self.subsystem.to_string()),
            ("--host", self.host.to_string()),
            ("--keep-alive-tmo", self.keep_alive_tmo.to_string()),
            ("--congestion", self.congestion.clone()),
            ("--tls-identity", self.tls_identity.clone()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words.extend(self.credentials.words());
        let flags = [
            ("--digests", self.digests),
            ("--system-verbs", self.system_verbs),
            ("--tls-key-compat", self.tls_key_compat),
        ];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| (*flag).to_owned()));
        words
    }

    pub(crate) fn connect(&self) -> Result<Client, Error> {
        Ok(Client::connect(self.address()?, &self.subsystem, &self.options())?)
    }
}
