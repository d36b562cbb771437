//! Which RouterOS setting makes a class lossy, and which command changes it.

use super::{RouterOsConfig, RouterOsPort, TrustMode};
use crate::advice::{Advice, LossyClass};
use crate::names::routeros;

/// The command that switches on ECN.
pub(crate) const ECN_ON: &str = "/interface ethernet switch qos tx-manager set ecn=yes numbers=0";

impl RouterOsConfig {
    /// The reason why the class of data is not lossless; `name` is the name of the switch.
    pub(crate) fn why_lossy(&self, name: &str, lossy: &LossyClass<'_>) -> Advice {
        let LossyClass {
            port,
            class,
            lossless,
            ..
        } = *lossy;
        let Some(own) = self.ports.get(port) else {
            return Advice {
                cause: format!("{name}: port {port} is not configured"),
                instead: String::new(),
            };
        };
        if lossless == 0 {
            return Advice {
                cause: format!(
                    "{name}: pfc={}: no class is lossless, and data is in class {class}",
                    routeros(&own.pfc)
                ),
                instead: format!(
                    "a priority-flow-control profile with traffic-class={class} tx=yes rx=yes on \
                    every lane"
                ),
            };
        }
        self.why_in_lossy_class(name, own, lossy)
    }

    /// Why the queues of a lossless class are full before its ports pause: pause thresholds that are too much
    /// for the shared pool, which all ports have together.
    pub(crate) fn why_full(&self, name: &str, port: &str) -> Option<Advice> {
        let profile = &self.ports.get(port)?.pfc;
        let pfc = self.pfc.iter().find(|pfc| pfc.name == *profile)?;
        let threshold = pfc.pause_threshold?;
        let kib = |bytes: u32| format!("{} KiB", bytes / 1024);
        let pool = self.shared_bytes();
        let cause = format!(
            "{name}: each port pauses at {} (pause-threshold of {}), and the shared pool of all ports has \
             {}: it is full before that",
            kib(threshold.bytes(pool)),
            routeros(profile),
            kib(pool)
        );
        let instead = format!(
            "/interface ethernet switch qos priority-flow-control set {} pause-threshold=auto \
             resume-threshold=auto",
            routeros(profile)
        );
        Some(Advice { cause, instead })
    }

    /// The setting without which nothing else of the configuration has an effect, if it is off.
    pub(crate) fn without_effect(&self) -> Option<Advice> {
        let off = || Advice {
            cause: "qos-hw-offloading is off".to_owned(),
            instead: "/interface ethernet switch set switch1 qos-hw-offloading=yes".to_owned(),
        };
        (!self.offloaded).then(off)
    }

    /// The reason why data is not in the lossless class that the port has.
    fn why_in_lossy_class(&self, name: &str, own: &RouterOsPort, lossy: &LossyClass<'_>) -> Advice {
        let LossyClass {
            class,
            dscp,
            lossless,
            ..
        } = *lossy;
        let mapped = self.dscp.contains_key(&dscp);
        let wanted = self
            .profiles
            .iter()
            .find(|profile| lossless >> profile.traffic_class & 1 == 1);
        let wanted = wanted.map_or("roce", |profile| profile.name.as_str());
        let only = crate::advice::class_list(lossless);
        match own.trust_l3 {
            TrustMode::Ignore if own.profile == wanted || !mapped => Advice {
                cause: format!(
                    "{name}: data is in class {class} by profile={}, and pfc={} is for class {only}",
                    routeros(&own.profile),
                    routeros(&own.pfc)
                ),
                instead: format!("set the PFC profile's traffic-class={class}"),
            },
            TrustMode::Ignore => Advice {
                cause: format!(
                    "{name}: trust-l3=ignore: DSCP {dscp} is not looked at, data is in class {class} by \
                        profile={}",
                    routeros(&own.profile)
                ),
                instead: "trust-l3=keep on every lane of the port".to_owned(),
            },
            TrustMode::Trust | TrustMode::Keep if !mapped => Advice {
                cause: format!(
                    "{name}: trust-l3={} and no map ip entry for DSCP {dscp}: such packets get the \
                        profile \"default\" \
                     (class {class}), not the port's",
                    own.trust_l3.name()
                ),
                instead: format!(
                    "/interface ethernet switch qos map ip add dscp={dscp} profile={}",
                    routeros(wanted)
                ),
            },
            TrustMode::Trust | TrustMode::Keep => Advice {
                cause: format!(
                    "{name}: pfc={} is for class {only}, and data (DSCP {dscp}) is in class {class}",
                    routeros(&own.pfc)
                ),
                instead: format!("set the PFC profile's traffic-class={class}"),
            },
        }
    }
}
