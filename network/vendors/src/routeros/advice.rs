//! Which RouterOS setting makes a class lossy, and which command changes it.

use super::{QosProfile, RouterOsConfig, RouterOsPort, TrustMode};
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
            if let Some(advice) = self.why_pfc_rests(name, own, class) {
                return advice;
            }
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
        if let Some(advice) = self.why_disabled(name, own, dscp) {
            return advice;
        }
        let mapped = self.dscp.contains_key(&dscp);
        let of_class =
            |profile: &&QosProfile| !profile.disabled && lossless >> profile.traffic_class & 1 == 1;
        let wanted = self.profiles.iter().find(of_class);
        let wanted = wanted.map(|profile| routeros(&profile.name));
        let only = crate::advice::class_list(lossless);
        let map = "/interface ethernet switch qos map ip";
        let (cause, instead) = match (own.trust_l3, wanted) {
            // Nothing is in the lossless class, so that no other traffic loses it.
            (TrustMode::Ignore, None) => (
                format!(
                    "data is in class {class} by profile={}, and pfc={} is for class {only}",
                    routeros(&own.profile),
                    routeros(&own.pfc)
                ),
                format!("set the PFC profile's traffic-class={class}"),
            ),
            (TrustMode::Ignore, Some(wanted)) => {
                let trust = "trust-l3=keep on every lane of the port";
                let entry = format!("{trust}; {map} add dscp={dscp} profile={wanted}");
                (
                    format!(
                        "trust-l3=ignore: DSCP {dscp} is not looked at, data is in class {class} by \
                         profile={}",
                        routeros(&own.profile)
                    ),
                    if mapped { trust.to_owned() } else { entry },
                )
            }
            (TrustMode::Trust | TrustMode::Keep, wanted) if !mapped => (
                format!(
                    "trust-l3={} and no map ip entry for DSCP {dscp}: such packets get the profile \
                     \"default\" (class {class}), not the port's",
                    own.trust_l3.name()
                ),
                format!(
                    "{map} add dscp={dscp} profile={}",
                    wanted.as_deref().unwrap_or("roce")
                ),
            ),
            (TrustMode::Trust | TrustMode::Keep, wanted) => (
                format!(
                    "pfc={} is for class {only}, and data (DSCP {dscp}) is in class {class}",
                    routeros(&own.pfc)
                ),
                match wanted {
                    Some(wanted) => format!("{map} set [find dscp={dscp}] profile={wanted}"),
                    None => format!("set the PFC profile's traffic-class={class}"),
                },
            ),
        };
        Advice {
            cause: format!("{name}: {cause}"),
            instead,
        }
    }

    /// The entry that would put data into another class, if it is disabled.
    fn why_disabled(&self, name: &str, own: &RouterOsPort, dscp: u8) -> Option<Advice> {
        let menu = "/interface ethernet switch qos";
        let trusts = own.trust_l3 != TrustMode::Ignore;
        let entry = self
            .map_ip
            .iter()
            .find(|entry| entry.values.contains(&dscp));
        if let Some(entry) = entry.filter(|entry| trusts && entry.disabled)
            && !self.dscp.contains_key(&dscp)
        {
            let values: Vec<String> = entry.values.iter().map(u8::to_string).collect();
            return Some(Advice {
                cause: format!("{name}: the map ip entry of DSCP {dscp} is disabled"),
                instead: format!("{menu} map ip enable [find dscp={}]", values.join(",")),
            });
        }
        let used = if trusts {
            self.dscp.get(&dscp)?
        } else {
            &own.profile
        };
        let profile = self.profiles.iter().find(|profile| profile.name == *used)?;
        profile.disabled.then(|| Advice {
            cause: format!(
                "{name}: the profile {} of DSCP {dscp} is disabled",
                routeros(used)
            ),
            instead: format!("{menu} profile enable {}", routeros(used)),
        })
    }

    /// The advice where the port's PFC profile is there, and pauses nothing.
    fn why_pfc_rests(&self, name: &str, own: &RouterOsPort, class: u8) -> Option<Advice> {
        let menu = "/interface ethernet switch qos priority-flow-control";
        let pfc = self.pfc.iter().skip(1).find(|pfc| pfc.name == own.pfc)?;
        let named = routeros(&own.pfc);
        let (state, command) = if pfc.disabled {
            ("is disabled", format!("{menu} enable {named}"))
        } else if pfc.traffic_classes >> class & 1 == 1 && !pfc.tx {
            (
                "sends no pauses",
                format!("{menu} set {named} tx=yes rx=yes"),
            )
        } else {
            return None;
        };
        Some(Advice {
            cause: format!("{name}: the PFC profile {named} {state}, and data is in class {class}"),
            instead: command,
        })
    }
}
