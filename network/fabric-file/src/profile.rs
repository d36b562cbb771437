//! From `[qos.NAME]` to the profile of a port.

use super::schema::{Ecn, MarkAt, Qos, Trust, WeighBy};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use fabric::Span;
use fabric::config::{
    CLASSES, ClassMap, GroupConfig, Limit, PfcConfig, Profile, QueueConfig, Red, RedAt, Shaper,
    Treatment, Weigh,
};
use fabric::headroom::{FRAME_MAX_BYTES, Headroom};
use fabric::topology::LinkConfig;

/// The shortest frame of Ethernet.
const FRAME_MIN_BYTES: u32 = 64;

/// A mistake: the field below the table, and the reason.
pub(crate) type Wrong = (String, String);

impl Qos {
    /// The profile of a port with this link.
    pub(crate) fn profile(&self, link: &LinkConfig) -> Result<Profile, Wrong> {
        let mut groups = [GroupConfig {
            limit: self.lossy_limit.0,
            ..GroupConfig::default()
        }; CLASSES];
        let mut lossless = 0_u8;
        for (index, class) in self.pfc.classes.iter().enumerate() {
            let class =
                class_of(*class).ok_or_else(|| out_of_range(&format!("pfc.classes[{index}]")))?;
            lossless |= 1 << class;
            groups[class] = self.lossless_group(class, link)?;
        }
        for key in self.pfc.class.keys() {
            let class = key
                .parse()
                .ok()
                .and_then(class_of)
                .filter(|class| lossless >> class & 1 == 1);
            if class.is_none() {
                let what = format!("\"{key}\" is none of `classes`: only those are paused");
                return Err((format!("pfc.class.{key}"), what));
            }
        }
        let pfc = PfcConfig {
            send: lossless,
            obey: lossless,
            quanta: self.pfc.quanta,
            response: self.pfc.response.0,
            ..PfcConfig::default()
        };
        let weigh = match self.weigh {
            WeighBy::Bytes => Weigh::Bytes,
            WeighBy::Packets => Weigh::Packets,
        };
        let group_of_class = [0, 1, 2, 3, 4, 5, 6, 7];
        Ok(Profile {
            map: self.class_map()?,
            queues: self.queues()?,
            weigh,
            group_of_class,
            groups,
            pfc,
        })
    }

    /// Buffer limits of a lossless class at a port with this link.
    fn lossless_group(&self, class: usize, link: &LinkConfig) -> Result<GroupConfig, Wrong> {
        let own = self
            .pfc
            .class
            .get(&format!("{class}"))
            .cloned()
            .unwrap_or_default();
        let xon = own
            .xon
            .as_ref()
            .map(|xon| bytes(xon.0, &format!("pfc.class.{class}.xon")))
            .transpose()?;
        Ok(GroupConfig {
            reserve_bytes: 0,
            limit: own.xoff.unwrap_or(self.pfc.xoff).0,
            headroom_bytes: own
                .headroom
                .unwrap_or(self.pfc.headroom)
                .0
                .unwrap_or_else(|| self.needed(link)),
            xon_offset_bytes: xon.map_or_else(|| bytes(self.pfc.xon.0, "pfc.xon"), Ok)?,
        })
    }

    fn needed(&self, link: &LinkConfig) -> u32 {
        automatic_headroom(link, self.pfc.response.0)
    }

    fn class_map(&self) -> Result<ClassMap, Wrong> {
        let default =
            class_of(self.default_class).ok_or_else(|| out_of_range("default-class"))? as u8;
        let default = Treatment {
            class: default,
            ..Treatment::default()
        };
        Ok(ClassMap {
            trust_dscp: matches!(self.trust, Trust::Dscp | Trust::Both),
            trust_pcp: matches!(self.trust, Trust::Pcp | Trust::Both),
            dscp: by_value(&self.dscp, "dscp", default)?,
            pcp: by_value(&self.pcp, "pcp", default)?,
            default,
        })
    }

    /// Class by DSCP.
    pub(crate) fn dscp_classes(&self) -> Result<[u8; 64], Wrong> {
        Ok(self.class_map()?.dscp.map(|treatment| treatment.class))
    }

    fn queues(&self) -> Result<[QueueConfig; CLASSES], Wrong> {
        let mut queues = [QueueConfig::default(); CLASSES];
        for (key, queue) in &self.queue {
            let field = format!("queue.{key}");
            let class = key.parse().ok().and_then(class_of).ok_or_else(|| {
                (
                    field.clone(),
                    format!("\"{key}\" is no class: queues are numbered from 0 to 7"),
                )
            })?;
            if queue.weight == 0 {
                return Err((format!("{field}.weight"), "a weight is at least 1".into()));
            }
            queues[class] = QueueConfig {
                level: queue.level,
                weight: queue.weight,
                shaper: match queue.rate {
                    Some(rate) => {
                        let burst_bytes = bytes(queue.burst.0, &format!("{field}.burst"))?;
                        Some(Shaper {
                            rate: rate.0,
                            burst_bytes,
                        })
                    }
                    None => None,
                },
                red: queue.ecn.as_ref().map(|ecn| red(ecn, &field)).transpose()?,
                limit: queue.limit.0,
                trim: self.trim(class, &field)?,
            };
        }
        Ok(queues)
    }
}

/// Headroom by 802.1Q annex N, for a port with this link whose peer stops after the `response`.
pub fn automatic_headroom(link: &LinkConfig, response: Span) -> u32 {
    let needed = Headroom {
        rate: link.rate,
        delay: link.delay,
        our_frame_max_bytes: FRAME_MAX_BYTES,
        peer_frame_max_bytes: FRAME_MAX_BYTES,
        response,
        cell_bytes: 1,
        frame_min_bytes: FRAME_MIN_BYTES,
    };
    needed.bytes()
}

fn red(ecn: &Ecn, field: &str) -> Result<Red, Wrong> {
    if ecn.min > ecn.max {
        let what = format!("min ({}) is above max ({})", ecn.min, ecn.max);
        return Err((format!("{field}.ecn"), what));
    }
    Ok(Red {
        min_bytes: bytes(ecn.min.0, &format!("{field}.ecn.min"))?,
        max_bytes: bytes(ecn.max.0, &format!("{field}.ecn.max"))?,
        probability: ecn.probability.chance(),
        mark: true,
        drop: ecn.drop,
        at: match ecn.at {
            MarkAt::Dequeue => RedAt::Dequeue,
            MarkAt::Enqueue => RedAt::Enqueue,
        },
    })
}

/// A table from values, single or in ranges, to classes.
fn by_value<const N: usize>(
    entries: &BTreeMap<String, u8>,
    name: &str,
    default: Treatment,
) -> Result<[Treatment; N], Wrong> {
    let mut table = [default; N];
    for (key, class) in entries {
        let field = format!("{name}.{key}");
        let (from, to) = key.split_once('-').unwrap_or((key, key));
        let range = from
            .trim()
            .parse::<usize>()
            .ok()
            .zip(to.trim().parse::<usize>().ok());
        let range = range.filter(|(from, to)| from <= to && *to < N);
        let Some((from, to)) = range else {
            let what = format!(
                "\"{key}\" is no value or range from 0 to {}: write 26 or \"8-15\"",
                N - 1
            );
            return Err((field, what));
        };
        let class = class_of(*class).ok_or_else(|| out_of_range(&field))? as u8;
        table[from..=to].fill(Treatment {
            class,
            ..Treatment::default()
        });
    }
    Ok(table)
}

fn class_of(class: u8) -> Option<usize> {
    Some(usize::from(class)).filter(|class| *class < CLASSES)
}

fn out_of_range(field: &str) -> Wrong {
    (field.into(), "classes are numbered from 0 to 7".into())
}

/// A size that fits where buffers are counted.
pub(crate) fn bytes(size: u64, field: &str) -> Result<u32, Wrong> {
    u32::try_from(size).map_err(|_| (field.into(), "more than 4 GiB".into()))
}

/// Whether a limit never admits anything.
pub(crate) fn is_closed(limit: Limit) -> bool {
    matches!(limit, Limit::Static(0) | Limit::Dynamic(0))
}
