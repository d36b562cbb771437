//! The profiles of a switch's ports.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fabric::config::{PROFILES_MAX, PortConfig, Profile};
use fabric::topology::LinkConfig;

/// The ports of one switch, and their profiles: each different profile once.
#[derive(Default)]
pub(super) struct PortProfiles {
    pub(super) ports: Vec<PortConfig>,
    pub(super) profiles: Vec<Profile>,
}

impl PortProfiles {
    pub(super) fn add(
        &mut self,
        link: &LinkConfig,
        profile: Profile,
    ) -> Result<(), (String, String)> {
        let found = self.profiles.iter().position(|other| *other == profile);
        let index = found.unwrap_or_else(|| {
            self.profiles.push(profile);
            self.profiles.len() - 1
        });
        if index >= PROFILES_MAX {
            return Err((
                "pfc.headroom".into(),
                format!("its ports need more than {PROFILES_MAX} different profiles"),
            ));
        }
        self.ports.push(PortConfig {
            rate: link.rate,
            profile: index as u8,
        });
        Ok(())
    }
}
