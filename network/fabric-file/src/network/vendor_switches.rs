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

/// A switch whose configuration is a vendor's: its number, its entry in the file, the entry's field that
/// names the files, and the files.
pub(super) struct VendorSwitch {
    pub(super) number: usize,
    pub(super) index: usize,
    pub(super) kind: &'static str,
    pub(super) paths: Vec<String>,
}

impl VendorSwitch {
    fn field(&self) -> String {
        format!("switch[{}].{}", self.index, self.kind)
    }
}

impl NetworkBuilder<'_> {
    /// A switch with the configuration that a vendor's files hold.
    pub(super) fn imported(
        &mut self,
        name: String,
        entry: &VendorSwitch,
        links: &[LinkConfig],
        files: &mut ReadFile<'_>,
    ) -> Option<NamedSwitch> {
        let field = entry.field();
        let imported = self.read_vendor_files(entry, files)?;
        let given = self
            .port_names
            .get(entry.number)
            .cloned()
            .unwrap_or_default();
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
                    let instead = port_meant(&imported, &name, wanted.as_deref());
                    self.wrong(Mistake::UnknownName, &field, what, &instead);
                    return None;
                }
            }
        }
        let config = SwitchConfig {
            ports: ports.ports,
            profiles: ports.profiles,
            buffer: imported.buffer(),
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

    /// The configuration in the files that an entry names.
    fn read_vendor_files(
        &mut self,
        entry: &VendorSwitch,
        files: &mut ReadFile<'_>,
    ) -> Option<Imported> {
        let field = entry.field();
        if entry.paths.is_empty() {
            let what = "needs one of routeros and sonic".to_owned();
            self.wrong(Mistake::Combination, &field, what, "give one of them");
            return None;
        }
        let mut texts = Vec::new();
        for path in &entry.paths {
            match files(path) {
                Ok(text) => texts.push((path.as_str(), text)),
                Err(why) => {
                    let what = format!("{path}: {why}");
                    let instead = "names are relative to the file that has them";
                    self.wrong(Mistake::Reference, &field, what, instead);
                    return None;
                }
            }
        }
        match Imported::read(entry.kind == "sonic", &texts) {
            Ok(imported) => Some(imported),
            Err(error) => {
                self.wrong(Mistake::Reference, &field, error.to_string(), "");
                None
            }
        }
    }
}

/// The port whose name is nearest to the one that the configuration does not have, or all that it has.
fn port_meant(imported: &Imported, switch: &str, wanted: Option<&str>) -> String {
    let there = imported.port_names();
    match wanted.and_then(|name| nearest(name, there.iter().map(String::as_str))) {
        Some(meant) => format!("did you mean \"{switch}:{meant}\"?"),
        None => format!("its ports are {}", there.join(", ")),
    }
}
