//! From `trim` of a queue to its configuration in switches.

use super::profile::{Wrong, bytes};
use super::schema::Qos;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use fabric::config::Trim;

/// The least that packets are cut to: the shortest frame, less what links add for models that count
/// otherwise.
const TRIMMED_BYTES_MIN: u64 = 40;

impl Qos {
    /// How the queue of a class trims.
    pub(crate) fn trim(&self, class: usize, field: &str) -> Result<Option<Trim>, Wrong> {
        let own = self.queue.iter().find(|(key, _)| key.parse() == Ok(class));
        let Some(table) = own.and_then(|(_, queue)| queue.trim.as_ref()) else {
            return Ok(None);
        };
        let wrong = |name: &str, what: String| Err((format!("{field}.trim.{name}"), what));
        if self
            .pfc
            .classes
            .iter()
            .any(|lossless| usize::from(*lossless) == class)
        {
            let what = "the class is lossless (pfc.classes): its packets wait, and are not trimmed";
            return Err((format!("{field}.trim"), what.to_owned()));
        }
        if table.queue > 7 || usize::from(table.queue) == class {
            return wrong(
                "queue",
                "trimmed packets need another queue, from 0 to 7".to_owned(),
            );
        }
        if !(TRIMMED_BYTES_MIN..=1024).contains(&table.to.0) {
            let what = format!("{} is not from {TRIMMED_BYTES_MIN} to 1024 bytes", table.to);
            return wrong("to", what);
        }
        let map = self.dscp_classes()?;
        let of_queue = |dscp: &u8| map[usize::from(*dscp)] == table.queue;
        let dscp = match table.dscp {
            Some(dscp) if dscp > 63 => return wrong("dscp", format!("{dscp} is more than 63")),
            Some(dscp) if !of_queue(&dscp) => {
                let what = format!(
                    "switches would put DSCP {dscp} into class {}, not into queue {}",
                    map[usize::from(dscp)],
                    table.queue
                );
                return wrong("dscp", what);
            }
            Some(dscp) => Some(dscp),
            None => (0..64).find(of_queue),
        };
        let Some(dscp) = dscp else {
            let what = format!(
                "no DSCP has class {}: add one to the table's dscp",
                table.queue
            );
            return wrong("queue", what);
        };
        Ok(Some(Trim {
            at_bytes: bytes(table.at.0, &format!("{field}.trim.at"))?,
            to_bytes: table.to.0 as u16,
            class: table.queue,
            dscp,
        }))
    }
}
