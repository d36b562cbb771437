//! Credentials of a host on a command line: those that a target demands, and those that a host presents.

use nvme::auth::{Secret, Secrets};
use nvme::tls::TlsKey;

use crate::value_or_file::ValueOrFile;

/// DH-HMAC-CHAP secrets and TLS key of a host, each as text or as `@FILE`.
#[derive(Debug, clap::Args)]
pub(crate) struct CredentialArgs {
    /// DH-HMAC-CHAP secret of the host, as rockery nvme gen-key dhchap and nvme gen-dhchap-key print it, or
    /// @FILE with the secret in it. Other users can see arguments in the process list, so prefer @FILE.
    #[arg(long, value_name = "SECRET")]
    secret: Option<ValueOrFile<Secret>>,
    /// DH-HMAC-CHAP secret with which the controller authenticates itself in return (bidirectional
    /// authentication), or @FILE.
    #[arg(long, value_name = "SECRET", requires = "secret")]
    controller_secret: Option<ValueOrFile<Secret>>,
    /// Pre-shared key of the host for TLS over TCP, as rockery nvme gen-key tls and nvme gen-tls-key print
    /// it, or @FILE.
    #[arg(long, value_name = "KEY")]
    tls_key: Option<ValueOrFile<TlsKey>>,
}

impl CredentialArgs {
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

    /// The options with which another process gets the same credentials; files stay files.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let text = |value: &Option<ValueOrFile<Secret>>| value.as_ref().map(|it| it.text.clone());
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
