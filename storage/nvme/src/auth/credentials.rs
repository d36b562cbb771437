//! Credentials of hosts: DH-HMAC-CHAP secrets and TLS keys.

use serde::{Deserialize, Serialize};

use super::{Group, Secret, Secrets};
use crate::tls::TlsKey;

/// The credentials of one host: DH-HMAC-CHAP secrets, a TLS PSK, or both.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Keys", into = "Keys")]
pub struct Credentials {
    /// The secrets of DH-HMAC-CHAP (Base 8.13.5), if the host has any.
    pub secrets: Option<Secrets>,
    /// The configured PSK for TLS; a host that has one may connect only through a port with TLS.
    pub tls_key: Option<TlsKey>,
}

/// The credentials in the form of the configuration file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Keys {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    controller_secret: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<Group>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_key: Option<TlsKey>,
}

impl TryFrom<Keys> for Credentials {
    type Error = &'static str;

    fn try_from(keys: Keys) -> Result<Self, &'static str> {
        let Keys {
            secret,
            controller_secret,
            group,
            tls_key,
        } = keys;
        let secrets = match secret {
            Some(secret) => Some(Secrets {
                secret,
                controller_secret,
                group,
            }),
            None if controller_secret.is_some() || group.is_some() => {
                return Err("controller-secret and group are of use beside a secret only");
            }
            None if tls_key.is_none() => return Err("a host has a secret, a tls-key, or both"),
            None => None,
        };
        Ok(Self { secrets, tls_key })
    }
}

impl From<Credentials> for Keys {
    fn from(credentials: Credentials) -> Self {
        let Credentials { secrets, tls_key } = credentials;
        let (secret, controller_secret, group) = match secrets {
            Some(Secrets {
                secret,
                controller_secret,
                group,
            }) => (Some(secret), controller_secret, group),
            None => (None, None, None),
        };
        Self {
            secret,
            controller_secret,
            group,
            tls_key,
        }
    }
}
