//! What a host proves itself with, on a command line: the target's, that asks for it, and the host's own.

use nvme::auth::{Secret, Secrets};
use nvme::tls::TlsKey;

use crate::kept::Kept;

/// Secrets, each itself or `@FILE`.
#[derive(Debug, clap::Args)]
pub(crate) struct Proofs {
    /// The host's secret, as nvme gen-dhchap-key prints it, or @FILE, which has it.
    #[arg(long, value_name = "SECRET")]
    secret: Option<Kept<Secret>>,
    /// The secret with which the controller proves itself in return.
    #[arg(long, value_name = "SECRET", requires = "secret")]
    controller_secret: Option<Kept<Secret>>,
    /// The host's key for TLS over TCP, as nvme gen-tls-key prints it, or @FILE.
    #[arg(long, value_name = "KEY")]
    tls_key: Option<Kept<TlsKey>>,
}

impl Proofs {
    pub(crate) fn secrets(&self) -> Option<Secrets> {
        self.secret.as_ref().map(|secret| Secrets {
            secret: secret.value.clone(),
            controller_secret: self.controller_secret.as_ref().map(|it| it.value.clone()),
            group: None,
        })
    }

    pub(crate) fn tls_key(&self) -> Option<TlsKey> {
        self.tls_key.as_ref().map(|key| key.value.clone())
    }

    /// The same on a command line.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let text = |kept: &Option<Kept<Secret>>| kept.as_ref().map(|it| it.text.clone());
        [
            ("--secret", text(&self.secret)),
            ("--controller-secret", text(&self.controller_secret)),
            ("--tls-key", self.tls_key.as_ref().map(|it| it.text.clone())),
        ]
        .into_iter()
        .filter_map(|(option, text)| Some([option.to_owned(), text?]))
        .flatten()
    }
}
