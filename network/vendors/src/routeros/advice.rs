//! Which RouterOS setting makes a class lossy, and which command changes it.

use super::{RouterOsConfig, TrustMode};
use crate::advice::{Advice, LossyClass};

/// The command that switches on ECN.
pub(crate) const ECN_ON: &str = "/interface ethernet switch qos tx-manager set ecn=yes numbers=0";

impl RouterOsConfig {
    /// The reason why the class of data is not lossless; `name` is the name of the switch.
    pub(crate) fn why_lossy(&self, name: &str, lossy: &LossyClass<'_>) -> Advice {
        let LossyClass {
            port,
            class,
            dscp,
            lossless,
        } = *lossy;
        let (cause, instead) = self.lossy_setting(name, port, (class, dscp, lossless));
        Advice { cause, instead }
    }

    /// The setting without which nothing else of the configuration has an effect, if it is off.
    pub(crate) fn without_effect(&self) -> Option<Advice> {
        let off = || Advice {
            cause: "qos-hw-offloading is off".to_owned(),
            instead: "/interface ethernet switch set switch1 qos-hw-offloading=yes".to_owned(),
        };
        (!self.offloaded).then(off)
    }

    fn lossy_setting(
        &self,
        name: &str,
        port: &str,
        (class, dscp, lossless): (u8, u8, u8),
    ) -> (String, String) {
        let Some(own) = self.ports.get(port) else {
            return (
                format!("{name}: port {port} is not configured"),
                String::new(),
            );
        };
        if lossless == 0 {
            let cause = format!(
                "{name}: pfc={}: no class is lossless, and data is in class {class}",
                own.pfc
            );
            return (
                cause,
                format!(
                    "a priority-flow-control profile with traffic-class={class} tx=yes rx=yes on \
                    every lane"
                ),
            );
        }
        let mapped = self.dscp.contains_key(&dscp);
        let wanted = self
            .profiles
            .iter()
            .find(|profile| lossless >> profile.traffic_class & 1 == 1);
        let wanted = wanted.map_or("roce", |profile| profile.name.as_str());
        let only = crate::advice::class_list(lossless);
        match own.trust_l3 {
            TrustMode::Ignore if own.profile == wanted || !mapped => {
                let cause = format!(
                    "{name}: data is in class {class} by profile={}, and pfc={} is for class {only}",
                    own.profile, own.pfc
                );
                (
                    cause,
                    format!("set the PFC profile's traffic-class={class}"),
                )
            }
            TrustMode::Ignore => {
                let cause = format!(
                    "{name}: trust-l3=ignore: DSCP {dscp} is not looked at, data is in class {class} by \
                        profile={}",
                    own.profile
                );
                (cause, "trust-l3=keep on every lane of the port".to_owned())
            }
            TrustMode::Trust | TrustMode::Keep if !mapped => {
                let cause = format!(
                    "{name}: trust-l3={} and no map ip entry for DSCP {dscp}: such packets get the \
                        profile \"default\" \
                     (class {class}), not the port's",
                    own.trust_l3.name()
                );
                (
                    cause,
                    format!(
                        "/interface ethernet switch qos map ip add dscp={dscp} profile={wanted}"
                    ),
                )
            }
            TrustMode::Trust | TrustMode::Keep => {
                let cause = format!(
                    "{name}: pfc={} is for class {only}, and data (DSCP {dscp}) is in class {class}",
                    own.pfc
                );
                (
                    cause,
                    format!("set the PFC profile's traffic-class={class}"),
                )
            }
        }
    }
}
