//! Switches whose configuration is a vendor's: RouterOS scripts or SONiC's `config_db.json`.

use super::port_profiles::PortProfiles;
use super::{NamedSwitch, NetworkBuilder};
use crate::document::ReadFile;
use crate::error::Mistake;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use fabric::config::SwitchConfig;
use fabric::topology::LinkConfig;
use vendors::text::nearest;
use vendors::{Imported, PortPlace};

/// A switch whose configuration is a vendor's: its number, its entry in the file, and the entry's field that
/// names the files.
pub(super) struct VendorSwitch {
    pub(super) number: usize,
    pub(super) index: usize,
    pub(super) kind: &'static str,
}

impl NetworkBuilder<'_> {
    /// A switch with the configuration that a vendor's files hold.
    pub(super) fn imported(
        &mut self,
        name: String,
        entry: &VendorSwitch,
        paths: &[String],
        links: &[LinkConfig],
        files: &mut ReadFile<'_>,
    ) -> Option<NamedSwitch> {
        let VendorSwitch {
            number,
            index,
            kind,
        } = *entry;
        let field = format!("switch[{index}].{kind}");
        if paths.is_empty() {
            let what = "needs one of routeros and sonic".to_owned();
            self.wrong(Mistake::Combination, &field, what, "give one of them");
            return None;
        }
        let mut texts = Vec::new();
        for path in paths {
            match files(path) {
                Ok(text) => texts.push((path.as_str(), text)),
                Err(why) => {
                    let what = format!("{path}: {why}");
                    self.wrong(
                        Mistake::Reference,
                        &field,
                        what,
                        "names are relative to this file",
                    );
                    return None;
                }
            }
        }
        let imported = match Imported::read(kind == "sonic", &texts) {
            Ok(imported) => imported,
            Err(error) => {
                self.wrong(Mistake::Reference, &field, error.to_string(), "");
                return None;
            }
        };
        let given = self.port_names.get(number).cloned().unwrap_or_default();
        let mut ports = PortProfiles::default();
        let mut names = Vec::new();
        for (port, link) in links.iter().enumerate() {
            let wanted = given.get(port).cloned().flatten();
            let place = PortPlace {
                name: wanted.as_deref(),
                index: port,
                count: links.len(),
            };
            match imported.port(&place, link) {
                Ok((name, profile)) => {
                    names.push(name);
                    if let Err((_, what)) = ports.add(link, profile) {
                        self.wrong(Mistake::Limit, &field, what, "");
                        return None;
                    }
                }
                Err(what) => {
                    let there = imported.port_names();
                    let meant = wanted
                        .as_deref()
                        .and_then(|name| nearest(name, there.iter().map(String::as_str)));
                    let instead = match meant {
                        Some(meant) => format!("did you mean \"{name}:{meant}\"?"),
                        None => format!("its ports are {}", there.join(", ")),
                    };
                    self.wrong(Mistake::UnknownName, &field, what, &instead);
                    return None;
                }
            }
        }
        let buffer = imported.buffer();
        let config = SwitchConfig {
            ports: ports.ports,
            profiles: ports.profiles,
            buffer,
        };
        let watchdog = imported.watchdog();
        Some(NamedSwitch {
            name,
            ports: names,
            config,
            imported: Some(imported),
            watchdog,
            willing: false,
        })
    }
}
