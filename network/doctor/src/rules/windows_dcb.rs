//! DCB of Windows: PFC, the priority of SMB Direct, and whether both come from the switch.
//!
//! A host that is willing takes PFC, ETS and the priority of SMB Direct (an application entry) from the link
//! partner, and programs no settings of its own: that is right beside a switch that sends all three, and
//! wrong beside one that is silent (802.1Q, 38.4).

use super::{Adapter, Consequence, Marks, Say, cost_of};
use vendors::facts::{WindowsClass, WindowsFacts};
use vendors::{HostRemedy, windows_traffic_class};

/// Finds faults of DCB of an adapter. `dcbx` is whether a switch of the input offers DCBX, as far as known.
pub(super) fn check(
    adapter: &Adapter,
    windows: &WindowsFacts,
    dcbx: Option<bool>,
    is_first: bool,
    say: Say<'_>,
) {
    let willing = adapter.willing.as_ref().or(windows.willing.as_ref());
    let own = Dcb {
        adapter,
        windows,
        // A link partner that sends PFC speaks DCBX.
        dcbx: adapter.remote_pfc.as_ref().map_or(dcbx, |_| Some(true)),
    };
    if let Some(off) = adapter.qos_enabled.as_ref().filter(|fact| !fact.value) {
        let fix = HostRemedy::Qos.of(adapter, true);
        let what = "QoS of the adapter is disabled";
        say(
            "adapter-qos",
            what,
            &[&off.seen],
            own.without_priority(),
            &fix,
        );
    } else if let Some(fact) = willing.filter(|fact| fact.value) {
        own.willing(fact, say);
    } else {
        own.pfc(willing.is_some(), say);
        if is_first {
            own.class(say);
        }
    }
    if is_first && !willing.is_some_and(|fact| fact.value) {
        own.policy(say);
    }
    own.global_pause(say);
}

struct Dcb<'a> {
    adapter: &'a Adapter,
    windows: &'a WindowsFacts,
    dcbx: Option<bool>,
}

impl Dcb<'_> {
    /// The cost of data without PFC in the priority of all other traffic.
    fn without_priority(&self) -> crate::Consequence {
        cost_of(self.adapter, Marks::default(), |talk| {
            (talk.pfc, talk.priority) = (0, 0)
        })
    }

    /// The priority of SMB Direct: the one in operation, else that of the host's policy.
    fn priority(&self) -> Option<u8> {
        let in_operation = self.adapter.smb_class.as_ref().and_then(|own| own.value);
        let policy = self.windows.smb_policy.as_ref().and_then(|own| own.value);
        in_operation.or(policy).map(|priority| priority & 7)
    }

    /// What the link partner of a willing host does not send. Where PFC was not shown, nothing is known.
    fn willing(&self, willing: &vendors::facts::Fact<bool>, say: Say<'_>) {
        let Some(pfc) = &self.adapter.pfc else {
            return;
        };
        let priority = self.priority();
        let has_pfc = priority.map_or(pfc.value != 0, |own| pfc.value >> own & 1 == 1);
        let list = priority.map_or_else(String::new, |own| format!(" for priority {own}"));
        let not_willing = HostRemedy::NotWilling.of(self.adapter, true);
        if !has_pfc {
            let what = format!(
                "Windows is willing, and gets no PFC{list} from the switch: settings of the host are not \
                 programmed"
            );
            let at_the_switch = format!(
                "DCBX of the switch sends PFC{list}, ETS and an application entry of SMB Direct; rockery \
                 doctor lldp shows what it sends"
            );
            let fix = match self.dcbx {
                Some(true) => at_the_switch,
                Some(false) => not_willing,
                None => format!(
                    "where the switch sends DCBX: {at_the_switch}\nwhere it sends none: {not_willing}"
                ),
            };
            let seen = [&willing.seen, &pfc.seen];
            say("willing", &what, &seen, self.without_priority(), &fix);
        } else if let Some(class) = self
            .adapter
            .smb_class
            .as_ref()
            .filter(|own| own.value.is_none())
        {
            let what = "Windows is willing, and the switch sends no application entry of SMB Direct: it has \
                        priority 0";
            let entry = "an application entry (port 445) in the DCBX of the switch";
            let fix = format!("{entry}\nor all of DCB by the host: {not_willing}");
            let consequence = cost_of(self.adapter, Marks::default(), |talk| {
                (talk.dscp, talk.priority) = (0, 0)
            });
            say(
                "willing",
                what,
                &[&willing.seen, &class.seen],
                consequence,
                &fix,
            );
        }
    }

    /// PFC of the host's own settings: in operation, or else as they are set on a host that is known not to
    /// be willing.
    fn pfc(&self, is_by_host: bool, say: Say<'_>) {
        let policy = self.windows.smb_policy.as_ref().and_then(|own| own.value);
        let own = self.windows.own_pfc.as_ref().filter(|_| is_by_host);
        let Some((pfc, priority)) = self.adapter.pfc.as_ref().or(own).zip(policy) else {
            return;
        };
        if pfc.value >> (priority & 7) & 1 == 1 {
            return;
        }
        let what = format!("PFC is off for priority {priority}, which SMB Direct has");
        let fix = HostRemedy::Pfc(1 << (priority & 7)).of(self.adapter, true);
        let consequence = cost_of(self.adapter, Marks::default(), |talk| talk.pfc = 0);
        say("windows-pfc", &what, &[&pfc.seen], consequence, &fix);
    }

    /// A traffic class that is made for another priority than SMB Direct has, which is in that of all others.
    fn class(&self, say: Say<'_>) {
        let policy = self.windows.smb_policy.as_ref();
        let Some((policy, priority)) = policy.and_then(|own| Some((own, own.value? & 7))) else {
            return;
        };
        let has = |class: &WindowsClass, priority: u8| class.priorities >> priority & 1 == 1;
        let classes = &self.windows.classes;
        let Some(own) = classes.iter().find(|own| has(&own.value, priority)) else {
            return;
        };
        // One of another priority, which its name says is that of SMB.
        let meant = classes.iter().find(|other| {
            other.value != own.value && other.value.name.to_ascii_lowercase().contains("smb")
        });
        let Some(meant) = meant.filter(|_| has(&own.value, 0) && priority != 0) else {
            return;
        };
        let what = format!(
            "SMB Direct has priority {priority}, which is in the traffic class {} with all other traffic: {} \
             is of other priorities",
            own.value.name, meant.value.name
        );
        let why = "what is left of the link depends on the other traffic";
        let fix = windows_traffic_class(&meant.value.name, priority);
        let seen = [&policy.seen, &own.seen, &meant.seen];
        say(
            "smb-class",
            &what,
            &seen,
            Consequence::NotSimulated(why),
            &fix,
        );
    }

    /// The policy that puts SMB Direct into a priority of its own.
    fn policy(&self, say: Say<'_>) {
        let adapter = self.adapter;
        let policy = self.windows.smb_policy.as_ref();
        let Some(policy) = policy.filter(|policy| policy.value.is_none()) else {
            return;
        };
        let what = "no policy gives SMB Direct (port 445 of NetworkDirect) a priority";
        // The priority that the adapter has PFC for is the one that the site has chosen.
        let pfc = adapter.pfc.as_ref().map_or(0, |pfc| pfc.value);
        let fix = match pfc.count_ones() {
            1 => HostRemedy::SmbPriority(pfc.trailing_zeros() as u8).of(adapter, true),
            _ => "New-NetQosPolicy \"SMB\" -NetDirectPortMatchCondition 445 -PriorityValue8021Action with \
                  the priority that the switches have PFC for"
                .to_owned(),
        };
        let consequence = cost_of(adapter, Marks::default(), |talk| {
            (talk.dscp, talk.priority) = (0, 0)
        });
        say("smb-policy", what, &[&policy.seen], consequence, &fix);
    }

    /// Pause of the whole link, which PFC is to replace.
    fn global_pause(&self, say: Say<'_>) {
        let adapter = self.adapter;
        if let Some(pause) = adapter.global_pause.as_ref().filter(|pause| pause.value) {
            let what = "802.3x pause is on (*FlowControl): it stops all priorities";
            let fix = HostRemedy::NoGlobalPause.of(adapter, true);
            let consequence = cost_of(adapter, Marks::default(), |talk| talk.pfc = 0);
            say("global-pause", what, &[&pause.seen], consequence, &fix);
        }
    }
}
